// Goal: the number of RPC calls of a single payment is minimal, from the request to after its block; for endpoints
// that can wait for a block, announce blocks, or neither.
// Tier: full (follows real block times or socket timeouts).
import { setTimeout as sleep } from "node:timers/promises";
import t, { type Test } from "tap";
import type { Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { testChain, withOwnAccounts, type TestChain } from "../helpers/chain.ts";
import { rpcProxy, SEND, SEND_AND_WAIT, type RpcProxy } from "../helpers/rpc-proxy.ts";
import { until } from "../helpers/until.ts";
import { post, signedPayment } from "./payments.ts";

const BLOCK_MS = 500;
/** Enough payments that one of them meets a known endpoint and a punctual block. */
const MAX_TRIES = 60;
/** After the next block: long enough for every call that the block could cause. */
const LATER_MS = 150;
const NEVER_MS = 3_600_000;
const MOST_POLLS = 9;
const CALL = "eth_call";
const BLOCK = "eth_getBlockByNumber";
const RECEIPT = "eth_getTransactionReceipt";

t.jobs = 4;
let chain: TestChain;

t.before(async () => {
  chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
});

/** The calls per method, from the request until after the block that follows the response. */
type Counts = Record<string, number>;

const totalOf = (counts: Counts): number =>
  Object.values(counts).reduce((sum, count) => sum + count, 0);

const within =
  (most: number) =>
  (counts: Counts): boolean =>
    totalOf(counts) <= most;

/** The first payment that is minimal, or else the one with the fewest calls. */
async function cheapest(
  t: Test,
  options: { waits: boolean; isAnnounced?: true },
  isMinimal: (counts: Counts) => boolean,
): Promise<{ app: TestApp["app"]; proxy: RpcProxy; counts: Counts; hash: Hex }> {
  const proxy = await rpcProxy(t, chain.rpcUrl);
  proxy.waits = options.waits;
  const urls = [proxy.url, ...(options.isAnnounced ? [chain.rpcUrl.replace("http", "ws")] : [])];
  const own = await withOwnAccounts(chain);
  const { app } = await testApp(t, {
    chain: { ...own, rpcUrl: urls.join(",") },
    // Disables the periodic calls.
    timings: { reconcileRoundMs: NEVER_MS, idleHeadMs: NEVER_MS },
  });
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  let best: { counts: Counts; hash: Hex } | undefined;
  for (let turn = 0; turn < MAX_TRIES; turn += 1) {
    const payer = privateKeyToAccount(generatePrivateKey());
    await chain.mint(payer.address, 1_000n);
    const body = await signedPayment({ chain, payer, payTo });
    proxy.calls.length = 0;
    const answer = await post(app, "settle", body);
    t.equal(answer["success"], true, JSON.stringify(answer));
    const number = await chain.publicClient.getBlockNumber();
    await until(async () => (await chain.publicClient.getBlockNumber()) > number);
    await sleep(LATER_MS);
    // The first payment fills the caches.
    if (turn === 0) continue;
    const counts: Counts = {};
    for (const { method } of proxy.calls) counts[method] = (counts[method] ?? 0) + 1;
    if (!best || totalOf(counts) < totalOf(best.counts))
      best = { counts, hash: answer["transaction"] as Hex };
    if (isMinimal(counts)) {
      best = { counts, hash: answer["transaction"] as Hex };
      break;
    }
  }
  if (!best) throw new Error("nothing was paid");
  return { app, proxy, ...best };
}

t.test("an endpoint that waits for the block", { timeout: 90_000 }, async (t) => {
  const { app, proxy, counts, hash } = await cheapest(t, { waits: true }, within(4));
  // Simulated once for the check, and once with the transaction that is sent. The gas price is cached.
  t.same(counts, { [CALL]: 2, [SEND_AND_WAIT]: 1, [BLOCK]: 1 });
  // Reconciliation reads each receipt once, when its block is final.
  for (let pass = 0; pass < 3; pass += 1) {
    await app.chainReads.of(chain.chainId).heads.refresh();
    while (await app.reconciliation.read(chain.chainId));
  }
  const read = proxy.calls.filter(({ method, params }) => method === RECEIPT && params[0] === hash);
  t.equal(read.length, 1, "by reconciliation");
});

t.test(
  "an endpoint that waits for the block and announces blocks",
  { timeout: 90_000 },
  async (t) => {
    const { counts } = await cheapest(t, { waits: true, isAnnounced: true }, within(4));
    t.same(counts, { [CALL]: 2, [SEND_AND_WAIT]: 1, [BLOCK]: 1 });
  },
);

t.test("an endpoint that only announces blocks", { timeout: 90_000 }, async (t) => {
  const { counts } = await cheapest(t, { waits: false, isAnnounced: true }, within(5));
  t.same(counts, { [CALL]: 2, [SEND]: 1, [BLOCK]: 1, [RECEIPT]: 1 });
});

t.test("an endpoint that does neither", { timeout: 90_000 }, async (t) => {
  // It polls eight times in the time of a block, and once after the send.
  // A block that is late by some polls says nothing about the calls of a payment, so the next one is tried.
  const { counts } = await cheapest(
    t,
    { waits: false },
    ({ [CALL]: calls, [BLOCK]: blocks = 0 }) => calls === 2 && blocks <= MOST_POLLS,
  );
  const { [BLOCK]: blocks = 0, [RECEIPT]: receipts = 0, ...others } = counts;
  t.same(others, { [CALL]: 2, [SEND]: 1 });
  t.ok(blocks <= MOST_POLLS, `${blocks} reads of a block`);
  t.ok(receipts <= blocks, "a receipt is read only together with a block");
});
