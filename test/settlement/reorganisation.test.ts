// Goal: on a network with more than one confirmation, a payment in a block that is reorganised away is not called settled, and is sent again from its stored bytes.
import t from "tap";
import { testChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  payers,
  randomAddress,
  request,
  startEngine,
  TOKEN_ABI,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

t.test("a reorganisation of depth 2 with 3 confirmations", { timeout: 60_000 }, async (t) => {
  const chain = await testChain(t);
  await chain.testClient.setAutomine(false);
  const database = await testDatabase(t);
  const node = await startEngine(t, { databaseUrl: database.url, chain, confirmations: 3 });
  const [payer] = payers(1);
  if (!payer) throw new Error("no payer");
  await chain.mint(payer.address, 10_000n);
  await chain.testClient.mine({ blocks: 5 });
  const to = randomAddress();
  const balance = () =>
    chain.publicClient.readContract({
      address: chain.usdc,
      abi: TOKEN_ABI,
      functionName: "balanceOf",
      args: [to],
    });
  const wanted = request(await authorize(chain, payer, { to }));
  await node.engine.settlement.accept(node.pool, wanted);
  const pool = () => chain.testClient.getTxpoolStatus();
  await until(async () => (await pool()).pending === 1);
  await chain.testClient.mine({ blocks: 2 });
  t.equal(await balance(), 1_000n, "it is in a block, two deep");
  t.match(
    await node.engine.settlement.wait(wanted.id, 1_500),
    { status: "pending" },
    "two of three confirmations",
  );

  await chain.testClient.request({ method: "anvil_reorg", params: [2, []] } as never);
  t.equal(await balance(), 0n, "the reorganised chain does not have it");
  // Sent again from the stored bytes, and mined again.
  await until(async () => (await pool()).pending === 1, 15_000);
  await chain.testClient.mine({ blocks: 1 });
  t.equal(await balance(), 1_000n);
  t.match(await node.engine.settlement.wait(wanted.id, 1_500), { status: "pending" });
  await chain.testClient.mine({ blocks: 2 });
  const outcome = await node.engine.settlement.wait(wanted.id, 15_000);
  t.equal(outcome.status, "settled", node.said());
  const { rows } = await database.pool.query("SELECT count(*)::int AS count FROM relayer_attempts");
  t.same(rows, [{ count: 1 }], "one set of bytes");
  t.equal(await balance(), 1_000n, "paid once");
  await expectLedgerEqualsChain(t, chain, database.pool);
});
