// Goal: one payment alone, from the request to its block and after, asks the chain what it must and no more; by what the endpoint can do: wait for a block, announce it, or neither.
// Tier: full (follows real block times or socket timeouts).
import { setTimeout as sleep } from "node:timers/promises";
import t, { type Test } from "tap";
import type { Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { punctuality } from "../helpers/punctual.ts";
import { PASSING, rpcProxy, SEND, SEND_AND_WAIT, type RpcCall } from "../helpers/rpc-proxy.ts";
import { post, signedPayment } from "./payments.ts";

const BLOCK_MS = 1_000;
/** Until an endpoint's ways and the rhythm of its blocks are known: so many that came when they were due. */
const FIRST = 4;
const COUNTED = 5;
const MOST_TURNS = 30;
/** A look at the next block would fall into this. */
const APART_MS = 1_100;
/** Of the token and the relayers no more is believed than this old, without asking along. */
const ASKED_ALONG_AFTER_MS = 1_100;
/** With what a busy machine adds to it. */
const SHORT_STEP_MS = 90;
const CALL = "eth_call";
const BLOCK = "eth_getBlockByNumber";
const RECEIPT = "eth_getTransactionReceipt";
const PRICE = "eth_maxPriorityFeePerGas";

t.jobs = 4;
let chain: TestChain;
let blocks: ReturnType<typeof punctuality>;

t.before(async () => {
  chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  blocks = punctuality(t, chain, BLOCK_MS);
});

/** By the book's reader, which has its own pace: the blocks and nonces that it reads have numbers. */
const isOfBooks = ({ method, params }: RpcCall): boolean =>
  params.some((param) => typeof param === "string" && /^0x[0-9a-f]{1,16}$/.test(param)) &&
  [BLOCK, "eth_getTransactionCount"].includes(method);

/** How often each method was asked, payment by payment, until the next block after the answer has passed. */
async function settled(t: Test, options: { waits: boolean; isAnnounced?: true }) {
  const proxy = await rpcProxy(t, chain.rpcUrl);
  proxy.waits = options.waits;
  const urls = [proxy.url, ...(options.isAnnounced ? [chain.rpcUrl.replace("http", "ws")] : [])];
  const relayer = generatePrivateKey();
  await chain.testClient.setBalance({
    address: privateKeyToAccount(relayer).address,
    value: 10n ** 20n,
  });
  const { app } = await testApp(t, {
    chain: { ...chain, rpcUrl: urls.join(","), relayerPrivateKey: relayer },
  });
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const each: { calls: RpcCall[]; hash: Hex; lookedMs: number[] }[] = [];
  let lookedMs: number[] = [];
  proxy.behave = (call) => {
    if (call.method === BLOCK && !isOfBooks(call)) lookedMs.push(performance.now());
    return PASSING(call, 0);
  };
  for (let inRow = 0, turn = 0; each.length < COUNTED; turn += 1) {
    if (turn === MOST_TURNS) throw new Error("too few blocks came when they were due");
    const payer = privateKeyToAccount(generatePrivateKey());
    await chain.mint(payer.address, 1_000n);
    const body = await signedPayment({ chain, payer, payTo });
    proxy.calls.length = 0;
    lookedMs = [];
    const answer = await post(app, "settle", body);
    t.equal(answer["success"], true, JSON.stringify(answer));
    await sleep(APART_MS);
    const calls = proxy.calls.filter((call) => !isOfBooks(call));
    const hash = answer["transaction"] as Hex;
    inRow = (await blocks.howPunctual(hash)).bySecondLook ? inRow + 1 : 0;
    if (inRow > FIRST) each.push({ calls, hash, lookedMs });
  }
  return { app, proxy, each };
}

type Settled = Awaited<ReturnType<typeof settled>>;

const count = (calls: readonly RpcCall[], method: string): number =>
  calls.filter((call) => call.method === method).length;

/**
 * Of most of them: the books may read meanwhile, and the price of gas is asked for now and then. Receipts of other
 * transactions are the books'.
 */
function usual({ each }: Settled): Record<string, number> {
  const methods = new Set(each.flatMap(({ calls }) => calls.map(({ method }) => method)));
  const median = (counts: number[]): number =>
    counts.sort((one, other) => one - other)[Math.floor(counts.length / 2)] ?? 0;
  const counts = [...methods].map((method) => {
    const own = each.map(({ calls, hash }) =>
      count(
        calls.filter(({ params }) => method !== RECEIPT || params[0] === hash),
        method,
      ),
    );
    return [method, median(own)] as const;
  });
  return Object.fromEntries(counts.filter(([, often]) => often > 0));
}

/** The books read each receipt once, when its block is final. */
async function readByBooks(t: Test, { app, proxy, each }: Settled): Promise<void> {
  await app.books.read(chain.chainId);
  await app.books.read(chain.chainId);
  const last = proxy.calls.filter(({ method, params }) => {
    return method === RECEIPT && params[0] === each.at(-1)?.hash;
  });
  t.equal(last.length, 1, "by the books");
}

t.test("an endpoint that waits for the block", { timeout: 90_000 }, async (t) => {
  const done = await settled(t, { waits: true });
  t.same(usual(done), {
    // Rehearsed as it is checked, and once more with what is sent.
    [CALL]: 2,
    [SEND_AND_WAIT]: 1,
    [BLOCK]: 1,
  });
  const prices = done.each.map(({ calls }) => count(calls, PRICE));
  t.ok(prices.filter((often) => often > 0).length <= 1, "the price of gas is remembered");
  await readByBooks(t, done);
});

t.test("it announces its blocks as well", { timeout: 90_000 }, async (t) => {
  const calls = usual(await settled(t, { waits: true, isAnnounced: true }));
  t.same(calls, { [CALL]: 2, [SEND_AND_WAIT]: 1, [BLOCK]: 1 });
});

t.test("it only announces them", { timeout: 90_000 }, async (t) => {
  const calls = usual(await settled(t, { waits: false, isAnnounced: true }));
  t.same(calls, { [CALL]: 2, [SEND]: 1, [BLOCK]: 1, [RECEIPT]: 1 });
});

t.test("it does neither", { timeout: 90_000 }, async (t) => {
  const done = await settled(t, { waits: false });
  const { [BLOCK]: blocks = 0, [RECEIPT]: receipts = 0, ...others } = usual(done);
  t.same(others, { [CALL]: 2, [SEND]: 1 });
  // A little before it is due, and in short steps until it is there, however late: one round of looks, or a second.
  const rounds = done.each.map(
    ({ lookedMs }) =>
      lookedMs.filter((ms, index) => ms - (lookedMs[index - 1] ?? -Infinity) > SHORT_STEP_MS)
        .length,
  );
  t.ok(
    rounds.filter((count) => count <= 2).length > COUNTED / 2,
    `${rounds.join(", ")} rounds of looks`,
  );
  t.ok(receipts <= blocks, "each with the receipt, which is not asked for by itself");
});

t.test("what was asked along is believed: a no as well", { timeout: 90_000 }, async (t) => {
  const own = await testChain(t);
  const proxy = await rpcProxy(t, own.rpcUrl);
  const relayer = generatePrivateKey();
  const { address } = privateKeyToAccount(relayer);
  await own.testClient.setBalance({ address, value: 10n ** 20n });
  const { app } = await testApp(t, {
    chain: { ...own, rpcUrl: proxy.url, relayerPrivateKey: relayer },
  });
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const payer = privateKeyToAccount(generatePrivateKey());
  await own.mint(payer.address, 10_000n);
  const next = async () => post(app, "settle", await signedPayment({ chain: own, payer, payTo }));
  t.match(await next(), { success: true });

  await own.testClient.setBalance({ address, value: 0n });
  await sleep(ASKED_ALONG_AFTER_MS);
  proxy.calls.length = 0;
  t.match(await next(), { success: false, errorMessage: /cannot pay for gas/ });
  t.equal(proxy.count("eth_getBalance"), 0, "the payment's own question told it");
  await own.testClient.setBalance({ address, value: 10n ** 20n });
  await sleep(ASKED_ALONG_AFTER_MS);
  t.match(await next(), { success: true }, "and a yes after it");

  const code = await own.publicClient.getCode({ address: own.usdc });
  // It answers every call with nothing: a rehearsal alone takes that for a yes.
  await own.testClient.setCode({ address: own.usdc, bytecode: "0x00" });
  await sleep(ASKED_ALONG_AFTER_MS);
  proxy.calls.length = 0;
  t.match(await next(), { success: false, errorMessage: /does not answer as a token/ });
  t.equal(proxy.count(CALL), 1, "the payment's own question told it");
  await own.testClient.setCode({ address: own.usdc, bytecode: code as Hex });
  await sleep(ASKED_ALONG_AFTER_MS);
  t.match(await next(), { success: true }, "and a yes after it");
});
