// Goal: once a spend's signature was public in our transaction, its budget is not released before the signature expires or is used: a third party that relays it later from our calldata causes no difference to the ledger.
import t, { type Test } from "tap";
import { parseAbi, type Hex } from "viem";
import { testChain, withOwnAccounts, type TestChain } from "../helpers/chain.ts";
import { walletWithLedger } from "../helpers/engine-ledger.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  BRISK,
  payers,
  randomAddress,
  request,
  startEngine,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

const ABI = parseAbi(["function pause()", "function unpause()"]);
const COUNTED = { window_sum: "1000" };

let steady: TestChain;

t.before(async () => {
  steady = await testChain(t, { blockTimeSeconds: 0.2 });
});

/** The token is paused between simulation and block: our transaction is mined without effect, and the signature is public. */
async function pausedUnderway(t: Test, validForSeconds: number) {
  const chain = await withOwnAccounts(steady);
  const database = await testDatabase(t);
  const token = async (functionName: "pause" | "unpause") => {
    const admin = chain.walletClient(chain.admin);
    const hash = await admin.writeContract({ address: chain.usdc, abi: ABI, functionName });
    await chain.publicClient.waitForTransactionReceipt({ hash });
  };
  let isFirst = true;
  const node = await startEngine(t, {
    databaseUrl: database.url,
    chain,
    blockTimeMs: 200,
    timings: BRISK,
    fault: async (point) => {
      if (point !== "signed" || !isFirst) return;
      isFirst = false;
      await token("pause");
    },
  });
  const wallet = await walletWithLedger(chain, database);
  const spend = await wallet.spend(randomAddress(), { validForSeconds });
  const [thirdParty] = payers(1);
  if (!thirdParty) throw new Error("no account");
  await chain.mint(thirdParty.address, 1_000n);
  const neighbour = request(await authorize(chain, thirdParty, { to: randomAddress() }));
  await node.engine.settlement.acceptAll(node.pool, [spend, neighbour]);
  const calldata = async (): Promise<Hex> => {
    const { rows } = await database.pool.query<{ mined_hash: Hex }>(
      "SELECT mined_hash FROM relayer_transactions WHERE status = 'mined' ORDER BY nonce",
    );
    const [first] = rows;
    if (!first) throw new Error("nothing was mined");
    return (await chain.publicClient.getTransaction({ hash: first.mined_hash })).input;
  };
  const refusedOften = () =>
    until(async () => {
      const { rows } = await database.pool.query("SELECT * FROM settlements WHERE id = $1", [
        spend.id,
      ]);
      return rows[0].status === "queued" && rows[0].attempts > 0;
    }, 15_000);
  return { chain, database, node, token, wallet, spend, neighbour, calldata, refusedOften };
}

t.test("a third party relays it from our calldata", { timeout: 60_000 }, async (t) => {
  const { chain, database, node, token, wallet, spend, neighbour, calldata, refusedOften } =
    await pausedUnderway(t, 600);
  await refusedOften();
  t.match(await node.engine.settlement.wait(neighbour.id, 10_000), { status: "failed" });
  t.match(await node.engine.settlement.wait(spend.id, 1_000), { status: "pending" });
  t.match(await wallet.ledger(spend.id), COUNTED, "the budget is not released");
  await node.stop();
  await token("unpause");
  const input = await calldata();
  t.ok(input.includes(spend.authorization.signature.slice(2, 66)), "the signature is public");
  await wallet.relayedByThirdParty(spend);

  const next = await startEngine(t, { databaseUrl: database.url, chain, timings: BRISK });
  t.match(await next.engine.settlement.wait(spend.id, 20_000), { status: "settled" });
  t.match(await wallet.ledger(spend.id), { status: "settled", ...COUNTED });
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test(
  "it is not relayed: it expires, and only then the budget is released",
  { timeout: 60_000 },
  async (t) => {
    const { chain, database, node, token, wallet, spend, neighbour, refusedOften } =
      await pausedUnderway(t, 60);
    await refusedOften();
    t.match(await node.engine.settlement.wait(neighbour.id, 10_000), { status: "failed" });
    t.match(await wallet.ledger(spend.id), COUNTED);
    await chain.testClient.setNextBlockTimestamp({ timestamp: spend.authorization.validBefore });
    // The search starts by our clock, the proof uses the chain's time.
    await database.pool.query(
      "UPDATE settlements SET valid_before = valid_before - 60 WHERE id = $1",
      [spend.id],
    );
    t.match(await node.engine.settlement.wait(spend.id, 30_000), { status: "expired" });
    t.match(await wallet.ledger(spend.id), { status: "voided", window_sum: "0" });
    await token("unpause");
    await expectLedgerEqualsChain(t, chain, database.pool);
  },
);

t.test("it is paid when the token moves again", { timeout: 60_000 }, async (t) => {
  const { chain, database, node, token, wallet, spend, neighbour, refusedOften } =
    await pausedUnderway(t, 60);
  await refusedOften();
  await token("unpause");
  t.match(
    await node.engine.settlement.wait(spend.id, 30_000),
    { status: "settled" },
    node.logText(),
  );
  t.match(await wallet.ledger(spend.id), { status: "settled", ...COUNTED });
  t.not((await node.engine.settlement.wait(neighbour.id, 30_000)).status, "pending");
  await expectLedgerEqualsChain(t, chain, database.pool);
});
