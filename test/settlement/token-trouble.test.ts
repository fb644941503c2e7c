// Goal: when the token itself is the trouble (paused in mid-batch, or a proxy that says yes and does nothing), payments stay together and no gas is thrown after it; and a depth of two is told one block after the first.
import t from "tap";
import type { Pool } from "pg";
import { parseAbi, type Hex } from "viem";
import { testChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  payers,
  randomAddress,
  request,
  settle,
  startEngine,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

const PAUSE = parseAbi(["function pause()", "function unpause()"]);
const COUNT = 20;

/** Nothing is sent before all payments are accepted: a busy machine takes them in two groups or three. */
const allAccepted =
  (pool: Pool) =>
  async (point: string): Promise<void> => {
    if (point === "claimed")
      await until(async () => (await pool.query("SELECT 1 FROM settlements")).rowCount === COUNT);
  };

async function paymentsOf(chain: Awaited<ReturnType<typeof testChain>>, count: number) {
  const accounts = payers(count);
  await chain.mint(
    accounts.map(({ address }) => address),
    10_000n,
  );
  return Promise.all(
    accounts.map(async (payer) => request(await authorize(chain, payer, { to: randomAddress() }))),
  );
}

t.jobs = 3;
t.test("paused in the very block that takes the batch", { timeout: 90_000 }, async (t) => {
  const chain = await testChain(t);
  await chain.testClient.setAutomine(false);
  await chain.testClient.mine({ blocks: 1 });
  const database = await testDatabase(t);
  const fault = allAccepted(database.pool);
  const node = await startEngine(t, { databaseUrl: database.url, chain, fault });
  const requests = await paymentsOf(chain, COUNT);
  const settling = Promise.all(requests.map((wanted) => settle(node, wanted, 60_000)));
  const pool = () => chain.testClient.getTxpoolStatus();
  await until(async () => (await pool()).pending === 1, 20_000);
  const admin = chain.walletClient(chain.admin);
  const dear = { maxFeePerGas: 10n ** 12n, maxPriorityFeePerGas: 10n ** 11n };
  await admin.writeContract({ address: chain.usdc, abi: PAUSE, functionName: "pause", ...dear });
  await chain.testClient.mine({ blocks: 1 });
  // Lifted before anybody looks: what the batch found is past.
  await admin.writeContract({ address: chain.usdc, abi: PAUSE, functionName: "unpause", ...dear });
  await chain.testClient.mine({ blocks: 1 });
  await chain.testClient.setIntervalMining({ interval: 1 });
  const outcomes = await settling;
  t.ok(
    outcomes.every(({ status }) => status === "settled"),
    node.said(),
  );
  t.same(node.batches, [COUNT, COUNT], "together again, not each by itself");
  const { rows } = await database.pool.query("SELECT 1 FROM lane_offenders");
  t.same(rows, [], "nobody is blamed");
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("a proxy whose code is gone", { timeout: 90_000 }, async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const database = await testDatabase(t);
  const code = await chain.publicClient.getCode({ address: chain.usdc });
  let isFirst = true;
  const gather = allAccepted(database.pool);
  const node = await startEngine(t, {
    databaseUrl: database.url,
    chain,
    fault: async (point) => {
      await gather(point);
      if (point !== "signed" || !isFirst) return;
      isFirst = false;
      // It answers every call with nothing: `delegatecall` to an account without code does.
      await chain.testClient.setCode({ address: chain.usdc, bytecode: "0x00" });
    },
  });
  const requests = await paymentsOf(chain, COUNT);
  const settling = Promise.all(requests.map((wanted) => settle(node, wanted, 60_000)));
  await until(
    () => node.logs.some(({ level, message }) => level === "error" && /does nothing/.test(message)),
    20_000,
  );
  await t.rejects(node.engine.settlement.assertAvailable(chain.chainId), {
    code: "chain_unavailable",
    message: /does not answer as a token/,
  });
  // Several rests later nothing more was sent.
  const from = await chain.publicClient.getBlockNumber();
  await until(async () => (await chain.publicClient.getBlockNumber()) >= from + 12n, 20_000);
  const { rows } = await database.pool.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM relayer_transactions",
  );
  t.same(rows, [{ count: 1 }], "one transaction told it");
  await chain.testClient.setCode({ address: chain.usdc, bytecode: code as Hex });
  const outcomes = await settling;
  t.ok(
    outcomes.every(({ status }) => status === "settled"),
    node.said(),
  );
  t.same(node.batches, [COUNT, COUNT]);
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test(
  "an inclusion depth of two is told with the second block",
  { timeout: 60_000 },
  async (t) => {
    const chain = await testChain(t, { blockTimeSeconds: 2 });
    const database = await testDatabase(t);
    const node = await startEngine(t, {
      databaseUrl: database.url,
      chain,
      inclusionDepth: 2,
      confirmations: 2,
      blockTimeMs: 2_000,
    });
    for (const wanted of await paymentsOf(chain, 3)) {
      const outcome = await settle(node, wanted, 20_000);
      const now = await chain.publicClient.getBlockNumber();
      t.equal(outcome.status, "settled", node.said());
      if (outcome.status === "settled")
        t.equal(now - outcome.blockNumber, 1n, "one block after its own");
    }
  },
);
