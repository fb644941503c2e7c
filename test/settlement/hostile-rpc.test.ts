// Goal: whatever an RPC endpoint does (silence, errors, lies, dropped or foreign transactions, stalled blocks, expensive gas), no payment is lost, none is made twice, and callers get a clear answer.
import t, { type Test } from "tap";
import { testChain, withOwnAccounts, type TestChain } from "../helpers/chain.ts";
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
import { rpcProxy, SEND, type Behaviour, type RpcCall } from "../helpers/rpc-proxy.ts";
import { until } from "../helpers/until.ts";

const BLOCK_MS = 200;
let steady: TestChain;

t.before(async () => {
  steady = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
});

interface Options extends Partial<TestEngineOptions> {
  spare?: boolean;
  /** A chain that mines only when the test requests it. */
  onDemand?: boolean;
}

async function world(t: Test, options: Options = {}) {
  const chain = options.onDemand === true ? await testChain(t) : await withOwnAccounts(steady);
  if (options.onDemand === true) {
    await chain.testClient.setAutomine(false);
    await chain.testClient.mine({ blocks: 1 });
  }
  const database = await testDatabase(t);
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const node = await startEngine(t, {
    databaseUrl: database.url,
    chain,
    rpcUrls: options.spare === true ? [proxy.url, chain.rpcUrl] : [proxy.url],
    rpcTimeoutMs: 600,
    blockTimeMs: BLOCK_MS,
    timings: BRISK,
    ...options,
  });
  const [payer] = payers(1);
  if (!payer) throw new Error("no payer");
  await chain.mint(payer.address, 10_000n);
  const payment = async () => request(await authorize(chain, payer, { to: randomAddress() }));
  const attempts = async () =>
    (
      await database.pool.query<{ hash: string; nonce: string }>(
        "SELECT hash, nonce FROM relayer_attempts ORDER BY created_at",
      )
    ).rows;
  return { chain, database, proxy, node, payment, attempts };
}

/** The first call of the method gets this behaviour, all later ones pass. */
const once = (method: string, behaviour: Behaviour) => {
  let isFirst = true;
  return (call: RpcCall): Behaviour => {
    if (call.method !== method || !isFirst) return { do: "pass" };
    isFirst = false;
    return behaviour;
  };
};

const hash = `0x${"ab".repeat(32)}`;
const FIRST_SENDS: [string, Behaviour][] = [
  [
    "returns a false `already known`",
    { do: "answer", error: { code: -32000, message: "already known" } },
  ],
  ["accepts it and drops it", { do: "answer", result: hash }],
  ["does not answer, but broadcasts it", { do: "hang", pass: true }],
  ["does not answer, and drops it", { do: "hang" }],
  ["cuts the connection, but broadcasts it", { do: "cut", pass: true }],
  ["answers 503", { do: "status", code: 503 }],
  [
    "returns an error, but broadcasts it",
    { do: "pass-and-lie", error: { code: -32603, message: "Internal error" } },
  ],
  [
    "returns a false `nonce too low`",
    { do: "answer", error: { code: -32000, message: "nonce too low" } },
  ],
];

t.jobs = 3;
for (const [what, behaviour] of FIRST_SENDS) {
  t.test(`the endpoint ${what}`, { timeout: 60_000 }, async (t) => {
    const { chain, database, proxy, node, payment, attempts } = await world(t);
    proxy.behave = once(SEND, behaviour);
    const outcome = await settle(node, await payment(), 30_000);
    t.equal(outcome.status, "settled", node.logText());
    t.equal((await attempts()).length, 1, "the same stored bytes, never a second transaction");
    await expectLedgerEqualsChain(t, chain, database.pool);
  });
}

t.test("a preferred endpoint that swallows transactions", { timeout: 60_000 }, async (t) => {
  const { chain, database, proxy, node, payment, attempts } = await world(t, { spare: true });
  proxy.behave = ({ method }) => (method === SEND ? { do: "cut", pass: true } : { do: "pass" });
  const outcome = await settle(node, await payment(), 30_000);
  t.equal(outcome.status, "settled", "the spare one is called too, and has it already");
  t.equal((await attempts()).length, 1);
  proxy.behave = () => ({ do: "status", code: 500 });
  t.equal(
    (await settle(node, await payment(), 30_000)).status,
    "settled",
    "while the first one is dead",
  );
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("all endpoints are down for a while", { timeout: 60_000 }, async (t) => {
  const { chain, database, proxy, node, payment } = await world(t);
  t.equal((await settle(node, await payment())).status, "settled");
  proxy.behave = () => ({ do: "status", code: 503 });
  await until(async () => !node.heads.healthy, 15_000);
  await t.rejects(node.engine.settlement.assertAvailable(chain.chainId), {
    code: "chain_unavailable",
  });
  const waiting = await payment();
  t.match(await settle(node, waiting, 700), { status: "pending" }, "unknown is not failed");
  const { rows } = await database.pool.query("SELECT status FROM settlements WHERE id = $1", [
    waiting.id,
  ]);
  t.same(rows, [{ status: "queued" }], "nothing new was signed");
  proxy.reset();
  t.equal(
    (await node.engine.settlement.wait(waiting.id, 20_000)).status,
    "settled",
    "it resumes by itself",
  );
  await node.engine.settlement.assertAvailable(chain.chainId);
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("simulations that fail without a reason do not count for long", async (t) => {
  const { chain, database, proxy, node, payment } = await world(t);
  proxy.behave = once("eth_call", {
    do: "answer",
    error: { code: -32005, message: "limit exceeded" },
  });
  t.equal((await settle(node, await payment())).status, "settled");
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("no block for a long time", { timeout: 90_000 }, async (t) => {
  const { chain, database, node, payment, attempts } = await world(t, { onDemand: true });
  const wanted = await payment();
  await node.engine.settlement.accept(node.pool, wanted);
  await until(() => node.counts.resent >= 3, 30_000);
  const early = await node.engine.settlement.wait(wanted.id, 1);
  t.equal(early.status, "pending");
  const [first] = await attempts();
  t.equal(
    early.status === "pending" && early.txHash,
    first?.hash,
    "pending, with the transaction hash",
  );
  await chain.testClient.mine({ blocks: 1 });
  const outcome = await node.engine.settlement.wait(wanted.id, 20_000);
  t.equal(outcome.status, "settled");
  t.equal((await attempts()).length, 1, "a stalled chain does not raise the fee");
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("gas becomes expensive between signing and mining", { timeout: 90_000 }, async (t) => {
  const { chain, database, node, payment, attempts } = await world(t, { onDemand: true });
  const wanted = await payment();
  const settling = settle(node, wanted, 60_000);
  await until(
    async () =>
      (await attempts()).length === 1 &&
      node.engine.chains.get(chain.chainId)?.lanes[0]?.inFlight === 1,
  );
  // Mine block after block, with pauses as on a real chain, until it is re-priced.
  await until(async () => {
    await chain.testClient.setNextBlockBaseFeePerGas({ baseFeePerGas: 50_000_000_000n });
    await chain.testClient.mine({ blocks: 1 });
    await new Promise((resolve) => setTimeout(resolve, 200));
    return (await attempts()).length > 1;
  }, 60_000);
  await chain.testClient.setIntervalMining({ interval: 1 });
  const outcome = await settling;
  t.equal(outcome.status, "settled", node.logText());
  const sent = await attempts();
  t.equal(sent.length, 2, "re-priced once, both hashes kept");
  t.equal(sent[0]?.nonce, sent[1]?.nonce, "with the same nonce");
  t.equal(outcome.status === "settled" && outcome.txHash, sent[1]?.hash);
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("a foreign transaction uses the relayer's key", { timeout: 90_000 }, async (t) => {
  let isFirst = true;
  const { chain, database, node, payment } = await world(t, {
    fault: async (point) => {
      if (point !== "persisted" || !isFirst) return;
      isFirst = false;
      const hash = await chain.walletClient(chain.relayer).sendTransaction({
        to: randomAddress(),
        value: 1n,
        account: chain.relayer,
        chain: chain.chain,
      });
      await chain.publicClient.waitForTransactionReceipt({ hash });
    },
  });
  const outcome = await settle(node, await payment(), 40_000);
  t.equal(outcome.status, "settled", node.logText());
  const { rows } = await database.pool.query(
    "SELECT status FROM relayer_transactions ORDER BY nonce",
  );
  t.same(rows, [{ status: "replaced" }, { status: "mined" }]);
  await expectLedgerEqualsChain(t, chain, database.pool);
});
