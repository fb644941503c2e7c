// Goal: a payer with code at its address goes alone, whatever form its signature has, and a payer that burns gas in a batch delays the others once at most.
import t, { type Test } from "tap";
import { parseAbi } from "viem";
import type { SettlementOutcome } from "../../server/plugins/settlement/types.ts";
import type { FaultPoint } from "../../server/plugins/settlement/context.ts";
import { testChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  payers,
  randomAddress,
  request,
  startEngine,
  type TestEngine,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";

/**
 * An ERC-1271 wallet that accepts every signature where gas costs nothing; else it burns all gas it is given:
 * `GASPRICE ISZERO ok JUMPI l: JUMPDEST l JUMP ok: JUMPDEST return 0x1626ba7e`.
 */
const TWO_FACED_BURNER = "0x3a156009575b6005565b631626ba7e60e01b60005260206000f3";
/** An ERC-1271 wallet that accepts every signature at any gas price: harmless for now. */
const YES = "0x631626ba7e60e01b60005260206000f3";
const COUNT = 101;

async function world(t: Test, fault?: (point: FaultPoint) => Promise<void>) {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const database = await testDatabase(t);
  const node = await startEngine(t, {
    databaseUrl: database.url,
    chain,
    ...(fault && { fault }),
  });
  return { chain, database, node };
}

async function paymentsOf(chain: Awaited<ReturnType<typeof testChain>>, count: number) {
  const accounts = payers(count);
  await chain.mint(
    accounts.map(({ address }) => address),
    10_000n,
  );
  const requests = await Promise.all(
    accounts.map(async (payer) => request(await authorize(chain, payer, { to: randomAddress() }))),
  );
  return { accounts, requests };
}

/** Accepts all at once, so that one claim takes all of them, also on a busy machine. */
async function settleAll(
  { engine, pool }: TestEngine,
  requests: ReturnType<typeof request>[],
): Promise<SettlementOutcome[]> {
  const { settlement } = engine;
  await settlement.acceptAll(pool, requests);
  return Promise.all(requests.map(({ id }) => settlement.wait(id, 40_000)));
}

t.test("an EIP-7702 account with a signature of its key", { timeout: 90_000 }, async (t) => {
  const { chain, database, node } = await world(t);
  const { accounts, requests } = await paymentsOf(chain, COUNT + 1);
  const [burner, wallet] = accounts;
  const [thirdParty] = chain.accounts;
  if (!burner || !wallet || !thirdParty) throw new Error("no account");
  await chain.testClient.setCode({ address: wallet.address, bytecode: YES });
  const delegate = randomAddress();
  await chain.testClient.setCode({ address: delegate, bytecode: TWO_FACED_BURNER });
  const outsider = chain.walletClient(thirdParty);
  // EIP-7702: the account keeps its key, and has this code from now on.
  const delegation = await burner.signAuthorization({
    address: delegate,
    chainId: chain.chainId,
    nonce: 0,
  });
  const hash = await outsider.sendTransaction({
    to: thirdParty.address,
    authorizationList: [delegation],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  const code = await chain.publicClient.getCode({ address: burner.address });
  t.match(code, /^0xef0100/, "it is delegated");
  const answer = await chain.publicClient.readContract({
    address: burner.address,
    abi: parseAbi(["function isValidSignature(bytes32, bytes) view returns (bytes4)"]),
    functionName: "isValidSignature",
    args: [`0x${"00".repeat(32)}`, "0x"],
  });
  t.equal(answer, "0x1626ba7e", "a call without a gas price succeeds");

  const [bad, ...good] = await settleAll(node, requests);
  t.equal(bad?.status, "failed");
  t.ok(
    good.every(({ status }) => status === "settled"),
    node.logText(),
  );
  const { rows } = await database.pool.query<{ items: number; solo: boolean; gas: string }>(
    `SELECT count(*)::int AS items, bool_or(i.from_address = ANY($1)) AS solo, sum(t.gas_used) / count(*) AS gas
       FROM relayer_transactions t JOIN settlement_transactions i
         ON i.chain_id = t.chain_id AND i.lane_address = t.lane_address AND i.lane_nonce = t.nonce
      GROUP BY t.nonce ORDER BY t.nonce`,
    [[burner.address.toLowerCase(), wallet.address.toLowerCase()]],
  );
  t.ok(rows.length <= 3, `the others share a batch: ${JSON.stringify(rows)}`);
  t.equal(rows.filter(({ solo }) => solo).length, 1, "the harmless one was sent");
  t.ok(
    rows.every(({ items, solo }) => !solo || items === 1),
    "it never shares one",
  );
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("code that appears between the check and the block", { timeout: 90_000 }, async (t) => {
  let burn: (() => Promise<void>) | undefined;
  const { chain, database, node } = await world(t, async (point) => {
    if (point === "persisted") await burn?.();
  });
  const { accounts, requests } = await paymentsOf(chain, 40);
  const [burner] = accounts;
  if (!burner) throw new Error("no account");
  const { address } = burner;
  // On a busy machine other payments may be sent first: set the code when this payer's transaction is stored.
  burn = async () => {
    const { rowCount } = await database.pool.query(
      "SELECT 1 FROM settlement_transactions WHERE from_address = $1 AND lane_nonce IS NOT NULL",
      [address.toLowerCase()],
    );
    if (rowCount === 0) return;
    burn = undefined;
    await chain.testClient.setCode({ address, bytecode: TWO_FACED_BURNER });
  };
  const [bad, ...good] = await settleAll(node, requests);
  t.equal(bad?.status, "failed");
  t.ok(
    good.every(({ status }) => status === "settled"),
    node.logText(),
  );
  const { rows } = await database.pool.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM relayer_transactions",
  );
  t.ok(Number(rows[0]?.count) <= 4, `the others are batched again: ${rows[0]?.count} transactions`);
  const { rows: offenders } = await database.pool.query(
    "SELECT payer FROM lane_offenders WHERE until > now() + interval '23 hours'",
  );
  t.same(offenders, [{ payer: address.toLowerCase() }], "it is remembered");

  // Without code again, it still goes alone for the day.
  await chain.testClient.setCode({ address, bytecode: "0x" });
  const again = request(await authorize(chain, burner, { to: randomAddress() }));
  const { requests: others } = await paymentsOf(chain, 3);
  const batchesBefore = node.batches.length;
  const outcomes = await settleAll(node, [again, ...others]);
  t.ok(
    outcomes.every(({ status }) => status === "settled"),
    node.logText(),
  );
  t.same(new Set(node.batches.slice(batchesBefore)), new Set([1, 3]));
  await expectLedgerEqualsChain(t, chain, database.pool);
});
