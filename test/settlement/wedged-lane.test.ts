// Goal: a transaction that nodes refuse permanently costs only a nonce: the lane continues, payments are tried again, fees are not raised, and a chain that lost our nonces is noticed.
// Tier: full (tries every variant of one feature).
import t, { type Test } from "tap";
import { parseTransaction, type Hex } from "viem";
import type { FaultPoint } from "../../server/plugins/settlement/context.ts";
import { testChain } from "../helpers/chain.ts";
import {
  doomedReplica,
  endLeases,
  expectAllPaidOnce,
  queuePayments,
} from "../helpers/engine-crash.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  BRISK,
  payers,
  randomAddress,
  request,
  settle,
  startEngine,
  type TestEngineOptions,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { rpcProxy, type RpcCall } from "../helpers/rpc-proxy.ts";
import { until } from "../helpers/until.ts";

const SEND = "eth_sendRawTransaction";
const PAST_THE_CAP = {
  code: -32000,
  message: "tx fee (1.20 ether) exceeds the configured cap (1.00 ether)",
};

const sent = (call: RpcCall) => parseTransaction(call.params[0] as Hex);
/** True for a batch or payment, false for a lane's empty transfer to itself. */
const isWork = (call: RpcCall): boolean => call.method === SEND && sent(call).data !== undefined;

async function world(t: Test, options: Partial<TestEngineOptions> = {}) {
  const chain = await testChain(t, { blockTimeSeconds: 0.2 });
  const database = await testDatabase(t);
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const start = (more: Partial<TestEngineOptions> = {}) =>
    startEngine(t, {
      databaseUrl: database.url,
      chain,
      rpcUrls: [proxy.url],
      blockTimeMs: 200,
      timings: BRISK,
      ...options,
      ...more,
    });
  const payment = async () => {
    const [payer] = payers(1);
    if (!payer) throw new Error("no payer");
    await chain.mint(payer.address, 10_000n);
    return request(await authorize(chain, payer, { to: randomAddress() }));
  };
  const all = async <Row>(sql: string): Promise<Row[]> =>
    (await database.pool.query(sql)).rows as Row[];
  return { chain, database, proxy, start, payment, all };
}

t.jobs = 3;
t.test("a transaction that is refused permanently", { timeout: 90_000 }, async (t) => {
  const { chain, database, proxy, start, payment, all } = await world(t);
  proxy.behave = (call) =>
    isWork(call) && sent(call).nonce === 0 ? { do: "answer", error: PAST_THE_CAP } : { do: "pass" };
  const node = await start();
  const requests = await Promise.all([payment(), payment(), payment()]);
  const outcomes = await Promise.all(requests.map((wanted) => settle(node, wanted, 40_000)));
  t.same(
    outcomes.map(({ status }) => status),
    ["settled", "settled", "settled"],
    node.logText(),
  );
  t.equal(node.counts.repriced, 0, "a transaction in no mempool is not re-priced");
  t.equal(node.counts.givenUp, 1);
  t.same(
    await all(`SELECT purpose, answer FROM relayer_attempts WHERE nonce = 0 ORDER BY attempt`),
    [
      { purpose: "work", answer: "node_fee_cap" },
      { purpose: "void", answer: "taken" },
    ],
    "each attempt stores the nodes' answer",
  );
  t.same(await all("SELECT status FROM relayer_transactions WHERE nonce = 0"), [
    { status: "given_up" },
  ]);
  const own = await chain.publicClient.getTransaction({
    hash: (await all<{ hash: Hex }>("SELECT hash FROM relayer_attempts WHERE purpose = 'void'"))[0]
      ?.hash as Hex,
  });
  t.match(own, { to: chain.relayer.address.toLowerCase(), value: 0n, input: "0x", gas: 21_000n });
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("one endpoint refuses permanently, the other is dead", { timeout: 90_000 }, async (t) => {
  const { chain, database, proxy, start, payment } = await world(t);
  proxy.behave = (call) =>
    isWork(call) && sent(call).nonce === 0 ? { do: "answer", error: PAST_THE_CAP } : { do: "pass" };
  const node = await start({ rpcUrls: [proxy.url, "http://127.0.0.1:1/"] });
  t.equal((await settle(node, await payment(), 40_000)).status, "settled", node.logText());
  t.equal(node.counts.givenUp, 1);
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("refused by its response, but broadcast", { timeout: 90_000 }, async (t) => {
  const { chain, database, proxy, start, payment, all } = await world(t);
  await chain.testClient.setIntervalMining({ interval: 0 });
  await chain.testClient.setAutomine(false);
  proxy.behave = (call) =>
    isWork(call) ? { do: "pass-and-lie", error: PAST_THE_CAP } : { do: "pass" };
  const node = await start();
  const wanted = await payment();
  const settling = settle(node, wanted, 60_000);
  await until(() => node.counts.givenUp === 1, 20_000);
  await chain.testClient.mine({ blocks: 1 });
  const outcome = await settling;
  t.equal(outcome.status, "settled", "whichever attempt is mined, its receipt decides");
  await chain.testClient.setIntervalMining({ interval: 1 });
  t.equal(
    (await all<object>("SELECT 1 FROM relayer_transactions WHERE status = 'given_up'")).length,
    0,
  );
  await expectLedgerEqualsChain(t, chain, database.pool);
});

for (const point of ["void-signed", "void-persisted", "void-broadcast"] satisfies FaultPoint[]) {
  t.test(`killed at "${point}", then started again`, { timeout: 120_000 }, async (t) => {
    const { chain, database, proxy, start } = await world(t);
    proxy.behave = (call) =>
      isWork(call) && sent(call).nonce === 0
        ? { do: "answer", error: PAST_THE_CAP }
        : { do: "pass" };
    const queued = await queuePayments(chain, database);
    await doomedReplica({ ...chain, rpcUrl: proxy.url }, database.url, point);
    await endLeases(database);
    const node = await start();
    await expectAllPaidOnce(t, { node, chain, database, ...queued });
  });
}

t.test("a payment that no node ever accepts harms only itself", { timeout: 120_000 }, async (t) => {
  const { chain, database, proxy, start, payment } = await world(t);
  const [bad, good] = [await payment(), await payment()];
  const poison = bad.authorization.nonce.slice(2);
  proxy.behave = (call) =>
    isWork(call) && sent(call).data?.includes(poison) === true
      ? { do: "answer", error: { code: -32000, message: "sender is on a list" } }
      : { do: "pass" };
  const node = await start();
  const [outcome, other] = await Promise.all([
    settle(node, bad, 100_000),
    settle(node, good, 100_000),
  ]);
  t.equal(other.status, "settled", node.logText());
  t.match(outcome, { status: "failed", message: /nodes reject every transaction/ });
  t.equal(node.counts.repriced, 0);
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("gas is more expensive than the operator's cap", { timeout: 90_000 }, async (t) => {
  const { chain, database, proxy, start, payment, all } = await world(t, {
    maxFeeGwei: 30,
    maxTipGwei: 2,
  });
  // Blocks are mined only on request.
  await chain.testClient.setIntervalMining({ interval: 0 });
  await chain.testClient.setAutomine(false);
  await chain.testClient.setNextBlockBaseFeePerGas({ baseFeePerGas: 90_000_000_000n });
  await chain.testClient.mine({ blocks: 1 });
  const madTip = `0x${(10n ** 18n).toString(16)}`;
  proxy.behave = ({ method }) =>
    method === "eth_maxPriorityFeePerGas" ? { do: "answer", result: madTip } : { do: "pass" };
  const node = await start();
  await until(() => (node.heads.head?.baseFeeWei ?? 0n) > 30_000_000_000n);
  await t.rejects(node.engine.settlement.assertAvailable(chain.chainId, { kind: "spend" }), {
    code: "chain_unavailable",
    message: /fee cap/,
  });
  const wanted = await payment();
  const settling = settle(node, wanted, 60_000);
  while ((node.heads.head?.baseFeeWei ?? 0n) >= 45_000_000_000n) {
    await chain.testClient.mine({ blocks: 1 });
    const number = await chain.publicClient.getBlockNumber();
    await until(() => (node.heads.head?.number ?? 0n) >= number);
  }
  t.same(await all("SELECT 1 FROM relayer_attempts"), [], "nothing is sent");
  await chain.testClient.setIntervalMining({ interval: 1 });
  t.equal((await settling).status, "settled", "empty blocks made it cheaper");
  const [attempt] = await all<{ fee: string; tip: string }>(
    "SELECT max_fee_wei::text AS fee, priority_fee_wei::text AS tip FROM relayer_attempts",
  );
  t.same(attempt, { fee: "30000000000", tip: "2000000000" }, "the caps, whatever a node suggests");
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("a chain that was reset below our nonces", { timeout: 90_000 }, async (t) => {
  const { chain, database, start, payment, all } = await world(t);
  await database.pool.query(
    "INSERT INTO relayer_lanes (chain_id, address, next_nonce) VALUES ($1, $2, 9)",
    [chain.chainId, chain.relayer.address.toLowerCase()],
  );
  const node = await start();
  const outcome = await settle(node, await payment(), 30_000);
  t.equal(outcome.status, "settled", node.logText());
  t.same(await all("SELECT nonce::int FROM relayer_transactions"), [{ nonce: 0 }]);
  t.ok(
    node.logs.some(({ level, message }) => level === "error" && /was reset/.test(message)),
    "it is logged",
  );
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("a chain that loses nonces while the engine runs", { timeout: 90_000 }, async (t) => {
  const { chain, start, payment, all } = await world(t);
  const { address } = chain.relayer;
  await chain.testClient.setNonce({ address, nonce: 5 });
  const node = await start();
  t.equal((await settle(node, await payment(), 30_000)).status, "settled");
  // Nonces 3 and 4 were never used by us; 5 was final.
  await chain.testClient.setNonce({ address, nonce: 3 });
  const outcome = await settle(node, await payment(), 60_000);
  t.equal(outcome.status, "settled", node.logText());
  t.ok(
    node.logs.some(
      ({ level, message }) => level === "error" && /lost our transactions/.test(message),
    ),
    "it is logged",
  );
  await until(
    async () =>
      (await all("SELECT 1 FROM relayer_transactions WHERE status = 'pending'")).length === 0,
    20_000,
  );
  t.same(
    await all(
      "SELECT nonce::int, status FROM relayer_transactions WHERE nonce IN (3, 4, 6) ORDER BY nonce",
    ),
    [
      { nonce: 3, status: "given_up" },
      { nonce: 4, status: "given_up" },
      { nonce: 6, status: "mined" },
    ],
  );
});

t.test("new payments are refused while the queue is stuck", { timeout: 60_000 }, async (t) => {
  const { chain, database, start, payment } = await world(t);
  // Another process holds the lane, and does nothing.
  await database.pool.query(
    `INSERT INTO relayer_lanes (chain_id, address, lease_owner, lease_epoch, lease_until)
     VALUES ($1, $2, 'somebody else', 1, 'infinity')`,
    [chain.chainId, chain.relayer.address.toLowerCase()],
  );
  const node = await start();
  const checkAvailable = (kind: "spend" | "withdrawal" | "facilitated") =>
    node.engine.settlement.assertAvailable(chain.chainId, { kind });
  await node.engine.settlement.accept(node.pool, await payment());
  await checkAvailable("facilitated");
  await database.pool.query("UPDATE settlements SET turn = turn - interval '31 seconds'");
  await until(() =>
    checkAvailable("facilitated").then(
      () => false,
      () => true,
    ),
  );
  await t.rejects(checkAvailable("facilitated"), {
    code: "chain_unavailable",
    message: /waiting for 3\d seconds/,
    headers: { "retry-after": "30" },
  });
  await checkAvailable("spend");
  await checkAvailable("withdrawal");
  await t.rejects(
    node.engine.settlement.assertAvailable(chain.chainId),
    { code: "chain_unavailable" },
    "readiness reports it",
  );
  await database.pool.query(
    `INSERT INTO relayer_transactions (chain_id, lane_address, nonce, to_address, calldata, gas_limit, created_at)
     VALUES ($1, $2, 0, $2, '', 21000, now() - interval '40 seconds')`,
    [chain.chainId, chain.relayer.address.toLowerCase()],
  );
  await until(() =>
    checkAvailable("spend").then(
      () => false,
      () => true,
    ),
  );
  await t.rejects(
    checkAvailable("spend"),
    { message: /waiting for 4\d seconds/ },
    "sent and not mined",
  );
  await checkAvailable("withdrawal");
});
