// Goal: when the token itself fails (paused while a batch is mined, or a proxy that succeeds and does nothing), payments stay batched and no further gas is spent.
import t from "tap";
import type { SettlementRequest } from "../../server/plugins/settlement/types.ts";
import { parseAbi, type Hex } from "viem";
import { testChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  BRISK,
  payers,
  randomAddress,
  request,
  startEngine,
  type TestEngine,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

const PAUSE = parseAbi(["function pause()", "function unpause()"]);
const COUNT = 20;

/** Accepts all at once, so that one claim takes all of them, also on a busy machine. */
async function settleTogether({ engine, pool }: TestEngine, requests: SettlementRequest[]) {
  await engine.settlement.acceptAll(pool, requests);
  return Promise.all(requests.map(({ id }) => engine.settlement.wait(id, 60_000)));
}

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
t.test("paused in the block that includes the batch", { timeout: 90_000 }, async (t) => {
  const chain = await testChain(t);
  await chain.testClient.setAutomine(false);
  await chain.testClient.mine({ blocks: 1 });
  const database = await testDatabase(t);
  const node = await startEngine(t, { databaseUrl: database.url, chain, timings: BRISK });
  const requests = await paymentsOf(chain, COUNT);
  const settling = settleTogether(node, requests);
  const pool = () => chain.testClient.getTxpoolStatus();
  await until(async () => (await pool()).pending === 1, 20_000);
  const admin = chain.walletClient(chain.admin);
  const dear = { maxFeePerGas: 10n ** 12n, maxPriorityFeePerGas: 10n ** 11n };
  await admin.writeContract({ address: chain.usdc, abi: PAUSE, functionName: "pause", ...dear });
  await chain.testClient.mine({ blocks: 1 });
  // Unpaused before the engine sees the result: the reason for the failure is gone.
  await admin.writeContract({ address: chain.usdc, abi: PAUSE, functionName: "unpause", ...dear });
  await chain.testClient.mine({ blocks: 1 });
  await chain.testClient.setIntervalMining({ interval: 1 });
  const outcomes = await settling;
  t.ok(
    outcomes.every(({ status }) => status === "settled"),
    node.logText(),
  );
  t.same(node.batches, [COUNT, COUNT], "batched again, not each alone");
  const { rows } = await database.pool.query("SELECT 1 FROM lane_offenders");
  t.same(rows, [], "no payer is recorded as offender");
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("a proxy whose implementation has no code", { timeout: 90_000 }, async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const database = await testDatabase(t);
  const code = await chain.publicClient.getCode({ address: chain.usdc });
  let isFirst = true;
  const node = await startEngine(t, {
    databaseUrl: database.url,
    chain,
    timings: BRISK,
    fault: async (point) => {
      if (point !== "signed" || !isFirst) return;
      isFirst = false;
      // Every call succeeds with empty data, like `delegatecall` to an account without code.
      await chain.testClient.setCode({ address: chain.usdc, bytecode: "0x00" });
    },
  });
  const requests = await paymentsOf(chain, COUNT);
  const settling = settleTogether(node, requests);
  const triedInVain = (times: number) =>
    until(
      () =>
        node.logs.filter(({ message }) => /accepts transfers without effect/.test(message))
          .length >= times,
      20_000,
    );
  await triedInVain(1);
  await t.rejects(node.engine.settlement.assertAvailable(chain.chainId), {
    code: "chain_unavailable",
    message: /does not work as a token/,
  });
  // After several pauses nothing more was sent.
  await triedInVain(4);
  const { rows } = await database.pool.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM relayer_transactions",
  );
  t.same(rows, [{ count: 1 }], "one transaction revealed it");
  await chain.testClient.setCode({ address: chain.usdc, bytecode: code as Hex });
  const outcomes = await settling;
  t.ok(
    outcomes.every(({ status }) => status === "settled"),
    node.logText(),
  );
  t.same(node.batches, [COUNT, COUNT]);
  await expectLedgerEqualsChain(t, chain, database.pool);
});
