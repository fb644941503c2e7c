// Goal: while nodes lag (receipts, logs, states, blocks), no payment is reported failed, expired or replaced; and a use long ago, or behind a row that fails, is found.
import t, { type Test } from "tap";
import { acceptSettlements } from "../../server/plugins/settlement/accept.ts";
import { ChainRpc } from "../../server/infra/chain/rpc.ts";
import { testChain, withOwnAccounts, type TestChain } from "../helpers/chain.ts";
import { walletWithLedger } from "../helpers/engine-ledger.ts";
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
import type { SettlementRequest } from "../../server/plugins/settlement/types.ts";
import { testDatabase } from "../helpers/postgres.ts";
import {
  behaving,
  denying,
  lagging,
  RECEIPTS_AND_LOGS,
  rpcProxy,
  type RpcCall,
} from "../helpers/rpc-proxy.ts";
import { until } from "../helpers/until.ts";

const BLOCK_MS = 200;
/** One chain mines at an interval, the other a block per transaction. */
let steady: TestChain;
let onDemand: TestChain;

t.before(async () => {
  steady = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  onDemand = await testChain(t);
});

interface Options {
  on?: TestChain;
  spare?: boolean;
  engine?: Partial<TestEngineOptions>;
}

async function world(t: Test, options: Options = {}) {
  const chain = await withOwnAccounts(options.on ?? steady);
  const database = await testDatabase(t);
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const start = () =>
    startEngine(t, {
      databaseUrl: database.url,
      chain,
      rpcUrls: options.spare === true ? [proxy.url, chain.rpcUrl] : [proxy.url],
      rpcTimeoutMs: 1_000,
      blockTimeMs: BLOCK_MS,
      timings: BRISK,
      ...options.engine,
    });
  const wallet = await walletWithLedger(chain, database);
  const row = async (id: string) =>
    (await database.pool.query("SELECT * FROM settlements WHERE id = $1", [id])).rows[0];
  /** Makes the next block later than this authorization's validBefore. */
  const pass = async ({ authorization }: SettlementRequest) => {
    const timestamp = authorization.validBefore + 1n;
    await chain.testClient.setNextBlockTimestamp({ timestamp });
    await chain.testClient.mine({ blocks: 1 });
  };
  /** Waits for this many more matching calls. */
  const waitForCalls = async (count: number, isLike: (call: RpcCall) => boolean) => {
    const from = proxy.calls.length;
    await until(() => proxy.calls.slice(from).filter(isLike).length >= count, 30_000);
  };
  return { chain, database, proxy, start, wallet, row, pass, waitForCalls };
}

async function payment(chain: TestChain) {
  const [payer] = payers(1);
  if (!payer) throw new Error("no payer");
  await chain.mint(payer.address, 10_000n);
  return request(await authorize(chain, payer, { to: randomAddress() }));
}

const isNonceLookup = ({ method, params }: RpcCall) =>
  method === "eth_getTransactionCount" && params[1] !== "latest";
const isStateRead = ({ method }: RpcCall) => method === "eth_call";

for (const [what, behave] of [
  ["far behind the calls", lagging({ ms: 600_000 }, RECEIPTS_AND_LOGS)],
  ["missing altogether", denying(RECEIPTS_AND_LOGS)],
] as const)
  t.test(`receipts and logs are ${what}`, { timeout: 90_000 }, async (t) => {
    const { chain, database, proxy, start, wallet, waitForCalls } = await world(t);
    const node = await start();
    const spend = await wallet.spend(randomAddress());
    const thirdParty = await payment(chain);
    proxy.behave = behave;
    const waiting = Promise.all([settle(node, spend, 60_000), settle(node, thirdParty, 60_000)]);
    // Wait until it has started to look for another transaction with that nonce, and does so again.
    await waitForCalls(1, isNonceLookup);
    await waitForCalls(1, ({ method }) => method === "eth_getTransactionReceipt");
    await waitForCalls(1, isNonceLookup);
    proxy.behave = () => ({ do: "pass" });
    t.match(await waiting, [{ status: "settled" }, { status: "settled" }], node.logText());
    t.same(node.corrections, []);
    const { rows } = await database.pool.query("SELECT status FROM relayer_transactions");
    t.ok(
      rows.every(({ status }) => status === "mined"),
      "ours was not taken for replaced",
    );
    t.match(await wallet.ledger(spend.id), { status: "settled", window_sum: "1000" });
    await expectLedgerEqualsChain(t, chain, database.pool);
  });

t.test("a lagging endpoint beside a good one", { timeout: 90_000 }, async (t) => {
  const { chain, database, proxy, start } = await world(t, { spare: true });
  const node = await start();
  await until(() => node.heads.head !== undefined);
  // The preferred endpoint is stuck at a block before the payer was funded and before anything was paid.
  const { number } = await chain.publicClient.getBlock();
  const wanted = await payment(chain);
  proxy.behave = lagging({ atBlock: Number(number) });
  t.match(await settle(node, wanted, 30_000), { status: "settled" }, node.logText());

  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("one of two endpoints denies what the other has", { timeout: 60_000 }, async (t) => {
  const { chain, database, proxy, start, wallet, pass, waitForCalls } = await world(t, {
    spare: true,
  });
  const node = await start();
  const late = await wallet.spend(randomAddress(), { kind: "x402", validForSeconds: 60 });
  await node.engine.settlement.accept(node.pool, late);
  // This endpoint's blocks are true but it denies states: only the other one knows of the use.
  proxy.behave = denying();
  const hash = await wallet.relayedByThirdParty(late);
  await chain.publicClient.waitForTransactionReceipt({ hash });
  await pass(late);
  // Called once as the preferred endpoint and once as a witness.
  await waitForCalls(2, isStateRead);
  proxy.reset();
  t.match(await node.engine.settlement.wait(late.id, 30_000), { status: "settled", txHash: hash });
  t.same(node.corrections, [], "it was never reported expired");
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("one of two endpoints is silent: an expiry waits for it", { timeout: 60_000 }, async (t) => {
  const { proxy, start, wallet, row, pass, waitForCalls } = await world(t, { spare: true });
  const node = await start();
  const late = await wallet.spend(randomAddress(), { kind: "x402", validForSeconds: 60 });
  await node.engine.settlement.accept(node.pool, late);
  proxy.behave = behaving({ do: "status", code: 503 });
  await pass(late);
  // Called repeatedly as a witness.
  await waitForCalls(
    3,
    ({ method, params }) => method === "eth_getBlockByNumber" && params[0] !== "latest",
  );
  t.equal((await row(late.id)).status, "queued", "one witness of two endpoints is not enough");
  proxy.reset();
  t.match(await node.engine.settlement.wait(late.id, 30_000), { status: "expired" });
});

t.test("an endpoint that stays silent is not waited for indefinitely", async (t) => {
  const chain = onDemand;
  const first = await rpcProxy(t, chain.rpcUrl);
  const second = await rpcProxy(t, chain.rpcUrl);
  const [patient, impatient] = [600_000, 0].map((absentAfterMs) => {
    // The same URL twice is one witness.
    const urls = [first.url, second.url, second.url];
    const rpc = new ChainRpc({ urls, timeoutMs: 1_000, absentAfterMs });
    t.teardown(() => rpc.close());
    t.equal(rpc.endpoints, 2);
    return () => rpc.witnesses((endpoint) => endpoint.call<string>("eth_chainId", []));
  });
  if (!patient || !impatient) throw new Error("no chain client");
  t.match(await patient(), { answers: ["0x4cef52", "0x4cef52"], needed: 2 });
  first.behave = behaving({ do: "status", code: 503 });
  t.match(await patient(), { answers: ["0x4cef52"], needed: 2 }, "it may come back");
  t.match(await impatient(), { answers: ["0x4cef52"], needed: 1 }, "it counts as absent now");
  first.reset();
  t.match(await impatient(), { needed: 2 }, "there again");
  first.behave = second.behave = behaving({ do: "cut" });
  t.match(await impatient(), { answers: [], needed: 1 }, "no answer is no witness");
});

t.test("used many search rounds before the search started", { timeout: 120_000 }, async (t) => {
  const { chain, database, proxy, start, wallet, row } = await world(t, {
    on: onDemand,
    engine: { search: { spanBlocks: 10n, spansPerRound: 5 } },
  });
  const broken = await wallet.spend(randomAddress(), { kind: "x402", validForSeconds: 400_000 });
  const wanted = await wallet.spend(randomAddress(), { kind: "x402", validForSeconds: 400_000 });
  const replay = await payment(chain);
  const [thirdParty] = chain.accounts;
  if (!thirdParty) throw new Error("no account");
  // The third party's payment was used before it was submitted here; ours was used while no process ran.
  const before = await wallet.relayedByThirdParty(replay);
  await chain.publicClient.waitForTransactionReceipt({ hash: before });
  await chain.testClient.mine({ blocks: 80 });
  const { number: acceptedBlock } = await chain.publicClient.getBlock();
  await acceptSettlements(database.pool, [
    { ...broken, acceptedBlock },
    { ...wanted, acceptedBlock },
    { ...replay, relay: false, acceptedBlock },
  ]);
  await chain.testClient.mine({ blocks: 220 });
  const hash = await wallet.relayedByThirdParty(wanted);
  await chain.publicClient.waitForTransactionReceipt({ hash });
  await wallet.relayedByThirdParty(broken);
  await chain.testClient.mine({ blocks: 150 });

  // Log queries for `broken` fail, and so do reads of the old state.
  proxy.behave = ({ method, params }) => {
    const text = JSON.stringify(params);
    if (method === "eth_getLogs" && text.includes(broken.authorization.nonce.slice(2)))
      return { do: "answer", error: { code: -32000, message: "query timeout exceeded" } };
    if (method === "eth_call" && text.includes(`"0x${acceptedBlock.toString(16)}"`))
      return { do: "answer", error: { code: -32000, message: "missing trie node" } };
    return { do: "pass" };
  };
  const node = await start();
  t.match(await node.engine.settlement.wait(wanted.id, 60_000), {
    status: "settled",
    txHash: hash,
  });
  t.match(
    await node.engine.settlement.wait(replay.id, 60_000),
    { status: "failed", reason: "invalid_exact_evm_nonce_already_used" },
    "found by its event, below the block of acceptance",
  );
  t.equal((await row(broken.id)).status, "queued");
  t.ok((await row(broken.id)).look_failures > 0, "postponed, and does not block other rows");
  proxy.reset();
  // The delay grows with each failure, so reset it while waiting.
  await until(async () => {
    await database.pool.query("UPDATE settlements SET look_at = now() WHERE id = $1", [broken.id]);
    return (await row(broken.id)).status === "settled";
  }, 60_000);
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test(
  "a foreign transaction with the lane's nonce is found by its block",
  { timeout: 90_000 },
  async (t) => {
    let isFirst = true;
    const { chain, database, proxy, start } = await world(t, {
      engine: {
        fault: async (point) => {
          if (point !== "persisted" || !isFirst) return;
          isFirst = false;
          // A foreign transaction used the nonce, and the states that would show when are unavailable.
          const { relayer, chain: viemChain } = chain;
          const hash = await chain.walletClient(relayer).sendTransaction({
            to: randomAddress(),
            value: 1n,
            account: relayer,
            chain: viemChain,
          });
          await chain.publicClient.waitForTransactionReceipt({ hash });
          await chain.testClient.mine({ blocks: 60 });
        },
      },
    });
    const node = await start();
    proxy.behave = ({ method, params }) =>
      method === "eth_getTransactionCount" && params[1] !== "latest"
        ? { do: "answer", error: { code: -32000, message: "missing trie node" } }
        : { do: "pass" };
    t.match(
      await settle(node, await payment(chain), 40_000),
      { status: "settled" },
      node.logText(),
    );
    const { rows } = await database.pool.query(
      "SELECT status, mined_hash FROM relayer_transactions ORDER BY nonce",
    );
    t.match(rows, [{ status: "replaced" }, { status: "mined" }]);
    const replacing = await chain.publicClient.getTransaction({ hash: rows[0].mined_hash });
    t.equal(
      replacing.from,
      chain.relayer.address.toLowerCase(),
      "the row contains the hash of the replacing transaction",
    );
    await expectLedgerEqualsChain(t, chain, database.pool);
  },
);

t.test("a node loses the block of reported payments", { timeout: 90_000 }, async (t) => {
  const { chain, database, proxy, start, wallet, row } = await world(t, {
    engine: { confirmations: 8, inclusionDepth: 1 },
  });
  const node = await start();
  const wanted = await wallet.spend(randomAddress());
  t.match(await settle(node, wanted, 20_000), { status: "settled" });
  const lost = `0x${BigInt((await row(wanted.id)).block_number).toString(16)}`;
  const hash = (await row(wanted.id)).tx_hash;
  proxy.behave = ({ method, params: [what] }) =>
    (method === "eth_getBlockByNumber" && what === lost) ||
    (method === "eth_getTransactionReceipt" && what === hash)
      ? { do: "answer", error: { code: -32603, message: "block not found" } }
      : { do: "pass" };
  t.equal((await row(wanted.id)).final_at, null, "not final when the node lost it");
  const next = await payment(chain);
  t.match(await settle(node, next, 20_000), { status: "settled" }, "the lane continues");
  await until(async () => (await row(next.id)).final_at !== null, 20_000);
  const rings = () => node.logs.filter(({ fields }) => "alarm" in fields);
  await until(() => rings().length > 0, 40_000);
  t.match(
    rings(),
    [{ level: "error", fields: { alarm: "chain_unseen", what: `block ${BigInt(lost)}` } }],
    "once",
  );
  t.equal((await row(wanted.id)).final_at, null, "and it decides nothing");
  proxy.reset();
  await until(async () => (await row(wanted.id)).final_at !== null, 20_000);
  await expectLedgerEqualsChain(t, chain, database.pool);
});
