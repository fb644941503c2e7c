// Goal: a new block is noticed when it comes, whether an endpoint announces it or it has to be asked for, with few questions; and an announcement is never believed by itself.
// Tier: full (follows real block times or socket timeouts).
import { setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import { HeadWatcher } from "../../server/infra/chain/heads.ts";
import { ChainRpc } from "../../server/infra/chain/rpc.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { rpcProxy, type RpcProxy } from "../helpers/rpc-proxy.ts";
import { tcpGate } from "../helpers/tcp-gate.ts";
import { until } from "../helpers/until.ts";

const BLOCK_MS = 1_000;
const BLOCKS = 9;
/** What the network is said to take: without a rhythm it would be asked five times in that. */
const SAID_MS = 2_000;

/** How late each block was noticed, by whoever asks the node without a pause; and what it cost to notice. */
async function watch(t: Test, chain: TestChain, wsUrls: string[], delayMs = 0) {
  const proxy = await rpcProxy(t, chain.rpcUrl, { delayMs });
  const rpc = new ChainRpc({ urls: [proxy.url] });
  const heads = new HeadWatcher(rpc, SAID_MS, wsUrls);
  t.teardown(async () => {
    heads.close();
    await rpc.close();
  });
  const seen = new Map<bigint, number>();
  heads.onHead(({ number, seenAtMs }) => void seen.set(number, seenAtMs));
  heads.start();
  const release = heads.want();
  // Three blocks to find the rhythm, or to be subscribed.
  await until(() => seen.size >= 3, 10_000);
  proxy.calls.length = 0;
  const came = new Map<bigint, number>();
  const startedMs = performance.now();
  while (came.size < BLOCKS) {
    const number = await chain.publicClient.getBlockNumber({ cacheTime: 0 });
    if (!came.has(number)) came.set(number, performance.now());
    await sleep(4);
  }
  const asked = proxy.count("eth_getBlockByNumber");
  const blocks = (performance.now() - startedMs) / BLOCK_MS;
  await sleep(300);
  release();
  const [, ...measured] = [...came];
  const lateMs = measured
    .map(([number, ms]) => (seen.get(number) ?? Number.POSITIVE_INFINITY) - ms)
    .sort((one, other) => one - other);
  return { medianMs: lateMs[Math.floor(lateMs.length / 2)] ?? 0, lateMs, asked: asked / blocks };
}

type Test = Parameters<typeof rpcProxy>[0];

t.test("announced", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  const { medianMs, lateMs, asked } = await watch(t, chain, [chain.rpcUrl.replace("http", "ws")]);
  t.ok(medianMs < 100, `noticed after ${lateMs.map(Math.round).join(", ")} ms`);
  t.ok(asked < 2, `${asked.toFixed(1)} questions a block`);
});

t.test("asked for when it is due", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  const { medianMs, lateMs, asked } = await watch(t, chain, []);
  t.ok(medianMs < 100, `noticed after ${lateMs.map(Math.round).join(", ")} ms`);
  t.ok(asked < 9, `${asked.toFixed(1)} questions a block`);
});

for (const delayMs of [60, 150, 300])
  t.test(`asked for when it is due, ${delayMs} ms away`, async (t) => {
    const chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
    const { medianMs, lateMs, asked } = await watch(t, chain, [], delayMs);
    t.ok(medianMs < 100, `noticed after ${lateMs.map(Math.round).join(", ")} ms`);
    t.ok(asked < 9, `${asked.toFixed(1)} questions a block`);
  });

t.test("an endpoint that announces falls away, and comes back", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  const dead = "ws://127.0.0.1:1";
  const { medianMs, lateMs } = await watch(t, chain, [dead]);
  t.ok(medianMs < 100, `noticed after ${lateMs.map(Math.round).join(", ")} ms`);
});

t.test("an endpoint that announces falls silent: the next one is listened to", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const node = new URL(chain.rpcUrl);
  const gate = await tcpGate(t, { host: node.hostname, port: Number(node.port) });
  const rpc = new ChainRpc({ urls: [chain.rpcUrl] });
  const heads = new HeadWatcher(rpc, 500, [`ws://127.0.0.1:${gate.port}`]);
  t.teardown(async () => {
    heads.close();
    await rpc.close();
  });
  const seen = new Set<bigint>();
  heads.onHead(({ number }) => void seen.add(number));
  heads.start();
  heads.want();
  await until(() => heads.isAnnounced && seen.size >= 3, 10_000);
  // Its socket stays open, and answers nothing: not to a close either.
  gate.silence(false);
  const size = seen.size;
  await until(() => !heads.isAnnounced, 20_000);
  t.ok(seen.size > size, "blocks are seen all the same");
  await until(() => heads.isAnnounced, 20_000);
});

t.test("an announced block counts once the node that is asked has it", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const rpc = new ChainRpc({ urls: [proxy.url] });
  const heads = new HeadWatcher(rpc, SAID_MS, [chain.rpcUrl.replace("http", "ws")]);
  t.teardown(async () => {
    heads.close();
    await rpc.close();
  });
  heads.start();
  heads.want();
  await until(() => heads.isAnnounced && heads.head !== undefined, 10_000);
  const known = await chain.publicClient.getBlock({ blockTag: "latest" });
  await until(() => (heads.head?.number ?? 0n) >= known.number);
  const stale = heads.head?.number ?? 0n;
  const answer = await rpc.call("eth_getBlockByNumber", [`0x${stale.toString(16)}`, false]);
  proxy.behave = ({ method }) =>
    method === "eth_getBlockByNumber" ? { do: "answer", result: answer } : { do: "pass" };
  await until(async () => (await chain.publicClient.getBlockNumber({ cacheTime: 0 })) > stale + 1n);
  t.equal(heads.head?.number, stale, "its own endpoint does not know it yet");
  proxy.behave = () => ({ do: "pass" });
  await until(() => (heads.head?.number ?? 0n) > stale, 4_000);
});

t.test("an answer that hangs delays nothing, and takes nothing back when it comes", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const rpc = new ChainRpc({ urls: [proxy.url] });
  const heads = new HeadWatcher(rpc, SAID_MS);
  t.teardown(async () => {
    heads.close();
    await rpc.close();
  });
  const seen: bigint[] = [];
  heads.onHead(({ number }) => void seen.push(number));
  heads.start();
  heads.want();
  await until(() => seen.length >= 2);
  let release = (): void => undefined;
  const letGo = new Promise<void>((resolve) => (release = resolve));
  let isHeld = false;
  proxy.behave = () => {
    if (isHeld) return { do: "pass" };
    isHeld = true;
    return { do: "hold", until: letGo };
  };
  const before = seen.length;
  await until(() => isHeld && seen.length >= before + 2);
  release();
  await until(() => seen.length >= before + 4);
  t.same(
    seen,
    seen.toSorted((one, other) => Number(one - other)),
    "never an older one after a newer one",
  );
});

t.test("nor does one that hangs when no block is due", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const rpc = new ChainRpc({ urls: [proxy.url], timeoutMs: 30_000 });
  const heads = new HeadWatcher(rpc, BLOCK_MS);
  t.teardown(async () => {
    heads.close();
    await rpc.close();
  });
  let seen = 0;
  heads.onHead(() => void (seen += 1));
  heads.start();
  heads.want();
  await until(() => seen >= 9, 20_000);
  // No more short steps: the chain has missed its time.
  await chain.testClient.setIntervalMining({ interval: 0 });
  await sleep(BLOCK_MS + 500);
  let asked = 0;
  proxy.behave = () => ((asked += 1) === 1 ? { do: "hang" } : { do: "pass" });
  await until(() => asked > 0);
  const before = seen;
  await chain.testClient.mine({ blocks: 1 });
  await until(() => seen > before, 5_000);
});

/** Six blocks are told of in this way; then: how long after the moments it holds to be due three blocks come. */
async function lateAfter(
  t: Test,
  tell: (place: { chain: TestChain; proxy: RpcProxy; isSeen: Promise<void> }) => Promise<void>,
): Promise<number[]> {
  const chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const rpc = new ChainRpc({ urls: [proxy.url] });
  const heads = new HeadWatcher(rpc, BLOCK_MS);
  t.teardown(async () => {
    heads.close();
    await rpc.close();
  });
  let seen = 0;
  let letGo = (): void => undefined;
  heads.onHead(() => {
    seen += 1;
    letGo();
  });
  heads.start();
  heads.want();
  await until(() => seen >= 6, 10_000);
  for (let block = 0; block < 6; block += 1) {
    const from = seen;
    const isSeen = new Promise<void>((resolve) => (letGo = resolve));
    await tell({ chain, proxy, isSeen });
    await until(() => seen > from);
  }
  proxy.behave = () => ({ do: "pass" });
  const dueMs: number[] = [];
  for (let block = 0; block < 3; block += 1)
    dueMs.push(heads.nextDueMs((dueMs.at(-1) ?? performance.now()) + 1) ?? Number.NaN);
  const lateMs: number[] = [];
  for (const due of dueMs) lateMs.push((await nextBlock(chain)) - due);
  return lateMs.toSorted((one, other) => one - other);
}

/** When the next block was there. */
async function nextBlock(chain: TestChain): Promise<number> {
  const number = () => chain.publicClient.getBlockNumber({ cacheTime: 0 });
  const last = await number();
  while ((await number()) === last) await sleep(4);
  return performance.now();
}

t.test("questions that are not answered yet do not say that there is no block", async (t) => {
  const HANGING = 3;
  // A block is due, and the first questions hang: a later one is told of it, long after it came.
  const lateMs = await lateAfter(t, async ({ proxy, isSeen }) => {
    let asked = 0;
    proxy.behave = () => ((asked += 1) <= HANGING ? { do: "hold", until: isSeen } : { do: "pass" });
  });
  t.ok(Math.abs(lateMs[1] ?? Number.NaN) < 100, `${lateMs.map(Math.round).join(", ")} ms`);
});

t.test("an answer that was overtaken does not say when its block came", async (t) => {
  const AFTER_MS = 300;
  // The question hangs, and is answered long after the block came; those after it know of no block in all that time.
  const lateMs = await lateAfter(t, async ({ chain, proxy }) => {
    const stale = await chain.publicClient.request({
      method: "eth_getBlockByNumber",
      params: ["latest", false],
    });
    let letGo = (): void => undefined;
    const isTime = new Promise<void>((resolve) => (letGo = resolve));
    let asked = 0;
    proxy.behave = () =>
      (asked += 1) === 1
        ? { do: "hold", until: isTime, ask: "after" }
        : { do: "answer", result: stale };
    await nextBlock(chain);
    await sleep(AFTER_MS);
    letGo();
  });
  t.ok(Math.abs(lateMs[1] ?? Number.NaN) < 100, `${lateMs.map(Math.round).join(", ")} ms`);
});

t.test("the newest block is known only as long as no newer one may be there", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  const rpc = new ChainRpc({ urls: [chain.rpcUrl] });
  const heads = new HeadWatcher(rpc, SAID_MS);
  t.teardown(async () => {
    heads.close();
    await rpc.close();
  });
  t.equal(heads.current, undefined, "none was seen");
  const seen = await heads.refresh();
  t.equal(heads.current, seen);
  await sleep(SAID_MS + 50);
  t.equal(heads.current, undefined, "by what the network is said to take");
  const blocks = new Set<bigint>();
  heads.onHead(({ number }) => void blocks.add(number));
  heads.start();
  const release = heads.want();
  await until(() => blocks.size >= 5, 15_000);
  // Nobody asks any more: after the last block that was seen, the next one is due by the rhythm.
  release();
  const last = heads.head;
  const dueMs = heads.nextDueMs(performance.now()) ?? 0;
  await sleep(dueMs - performance.now() + 60);
  t.equal(heads.head, last, "it was not looked for");
  t.equal(heads.current, undefined, "and by when blocks come");
  t.ok((await heads.newest()).number > (last?.number ?? 0n), "then it is asked for");
});
