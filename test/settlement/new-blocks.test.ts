// Goal: a new block is noticed on time and with few calls, whether an endpoint announces it or it is polled; and an announcement alone is never trusted.
// Tier: full (follows real block times or socket timeouts).
import { setTimeout as sleep } from "node:timers/promises";
import t, { type Test as TapTest } from "tap";
import { createPublicClient, webSocket } from "viem";
import { HeadWatcher } from "../../server/infra/chain/heads.ts";
import { ChainRpc } from "../../server/infra/chain/rpc.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { rpcProxy, type RpcProxy } from "../helpers/rpc-proxy.ts";
import { tcpGate } from "../helpers/tcp-gate.ts";
import { until } from "../helpers/until.ts";

const BLOCK_MS = 1_000;
const BLOCKS = 9;
/** The configured block time: without a learned schedule the node would be polled five times in that time. */
const CONFIGURED_MS = 2_000;

const MANY_MS = 100;
/** On a busy machine blocks and timers are late. Of so many attempts, one shows the real behaviour. */
const TRIES = 6;

t.jobs = 4;
let steady: TestChain;
/** When each block of that chain was announced to this process. */
const came = new Map<bigint, number>();

t.before(async () => {
  steady = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  const transport = webSocket(steady.rpcUrl.replace("http", "ws"));
  const client = createPublicClient({ transport });
  const unwatch = client.watchBlockNumber({
    onBlockNumber: (number) => void came.set(number, performance.now()),
  });
  t.teardown(async () => {
    unwatch();
    (await client.transport.getRpcClient()).close();
  });
});

/** Resolves when the next block was announced. */
async function nextBlock(): Promise<number> {
  const last = [...came.keys()].at(-1) ?? 0n;
  await until(() => [...came.keys()].some((number) => number > last));
  return [...came].find(([number]) => number > last)?.[1] ?? Number.NaN;
}

/** Repeats until the result is good; the last result is returned. */
async function attempts<Result>(
  attempt: () => Promise<Result>,
  isGood: (result: Result) => boolean,
): Promise<Result> {
  let result = await attempt();
  for (let tried = 1; tried < TRIES && !isGood(result); tried += 1) result = await attempt();
  return result;
}

const medianOf = (numbers: number[]): number =>
  numbers.toSorted((one, other) => one - other)[Math.floor(numbers.length / 2)] ?? Number.NaN;

/** Checks how long after their announcement blocks are noticed, and with how many calls. */
async function expectNoticed(
  t: Test & Pick<TapTest, "ok">,
  wsUrls: string[],
  { most, delayMs = 0 }: { most: number; delayMs?: number },
): Promise<void> {
  const proxy = await rpcProxy(t, steady.rpcUrl, { delayMs });
  const rpc = new ChainRpc({ urls: [proxy.url] });
  const heads = new HeadWatcher(rpc, CONFIGURED_MS, wsUrls);
  t.teardown(async () => {
    heads.close();
    await rpc.close();
  });
  const seen = new Map<bigint, number>();
  heads.onHead(({ number, seenAtMs }) => void seen.set(number, seenAtMs));
  heads.start();
  heads.want();
  // Three blocks to learn the schedule, or to subscribe.
  await until(() => seen.size >= 3, 30_000);
  const watch = async () => {
    const from = seen.size;
    proxy.calls.length = 0;
    await until(() => seen.size >= from + BLOCKS, 60_000);
    const calls = proxy.count("eth_getBlockByNumber") / BLOCKS;
    const lateMs = [...seen]
      .slice(from)
      .map(([number, ms]) => ms - (came.get(number) ?? Number.NEGATIVE_INFINITY));
    return { calls, lateMs };
  };
  const { calls, lateMs } = await attempts(
    watch,
    ({ calls, lateMs }) => medianOf(lateMs) < MANY_MS && calls < most,
  );
  t.ok(medianOf(lateMs) < MANY_MS, `noticed after ${lateMs.map(Math.round).join(", ")} ms`);
  t.ok(calls < most, `${calls.toFixed(1)} calls for each block`);
}

type Test = Parameters<typeof rpcProxy>[0];

t.test("blocks are announced", { timeout: 120_000 }, (t) =>
  expectNoticed(t, [steady.rpcUrl.replace("http", "ws")], { most: 2 }),
);

t.test("blocks are polled when they are due", { timeout: 120_000 }, (t) =>
  expectNoticed(t, [], { most: 9 }),
);

for (const delayMs of [60, 150, 300])
  t.test(`blocks are polled when they are due, ${delayMs} ms away`, { timeout: 120_000 }, (t) =>
    expectNoticed(t, [], { most: 9, delayMs }),
  );

t.test("the announcing endpoint is unreachable", { timeout: 120_000 }, (t) =>
  expectNoticed(t, ["ws://127.0.0.1:1"], { most: 9 }),
);

t.test("an announcing endpoint becomes silent: it is subscribed again", async (t) => {
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
  // Its socket stays open but sends nothing, not even a response to a close.
  gate.silence(false);
  const size = seen.size;
  await until(() => !heads.isAnnounced, 20_000);
  t.ok(seen.size > size, "blocks are still seen");
  await until(() => heads.isAnnounced, 20_000);
});

t.test("an announced block counts once the RPC endpoint has it", async (t) => {
  const chain = steady;
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const rpc = new ChainRpc({ urls: [proxy.url] });
  const heads = new HeadWatcher(rpc, CONFIGURED_MS, [chain.rpcUrl.replace("http", "ws")]);
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
  t.equal(heads.head?.number, stale, "its own endpoint does not have it yet");
  proxy.behave = () => ({ do: "pass" });
  await until(() => (heads.head?.number ?? 0n) > stale, 30_000);
});

t.test("a hanging response delays nothing, and takes nothing back when it arrives", async (t) => {
  const proxy = await rpcProxy(t, steady.rpcUrl);
  const rpc = new ChainRpc({ urls: [proxy.url] });
  const heads = new HeadWatcher(rpc, CONFIGURED_MS);
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
  await until(() => isHeld && seen.length >= before + 2, 30_000);
  release();
  await until(() => seen.length >= before + 4, 30_000);
  t.same(
    seen,
    seen.toSorted((one, other) => Number(one - other)),
    "never an older one after a newer one",
  );
});

t.test("nor does a call that hangs when no block is due", async (t) => {
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
  // The phase of short polling intervals is over: the chain has missed its due time.
  await chain.testClient.setIntervalMining({ interval: 0 });
  await sleep(BLOCK_MS + 500);
  let calls = 0;
  proxy.behave = () => ((calls += 1) === 1 ? { do: "hang" } : { do: "pass" });
  await until(() => calls > 0);
  const before = seen;
  await chain.testClient.mine({ blocks: 1 });
  await until(() => seen > before, 20_000);
});

/** Six blocks are seen as `showBlock` arranges it; then checks that the next blocks come when the schedule expects them. */
async function expectDueAfter(
  t: Test & Pick<TapTest, "ok">,
  showBlock: (place: { proxy: RpcProxy; isSeen: Promise<void> }) => Promise<void>,
): Promise<void> {
  const proxy = await rpcProxy(t, steady.rpcUrl);
  const lateAfter = async (): Promise<number[]> => {
    proxy.reset();
    const rpc = new ChainRpc({ urls: [proxy.url] });
    const heads = new HeadWatcher(rpc, BLOCK_MS);
    try {
      let seen = 0;
      let letGo = (): void => undefined;
      heads.onHead(() => {
        seen += 1;
        letGo();
      });
      heads.start();
      heads.want();
      await until(() => seen >= 6, 30_000);
      for (let block = 0; block < 6; block += 1) {
        const from = seen;
        const isSeen = new Promise<void>((resolve) => (letGo = resolve));
        await showBlock({ proxy, isSeen });
        await until(() => seen > from, 30_000);
      }
      proxy.reset();
      const dueMs: number[] = [];
      for (let block = 0; block < 3; block += 1)
        dueMs.push(heads.nextDueMs((dueMs.at(-1) ?? performance.now()) + 1) ?? Number.NaN);
      const lateMs: number[] = [];
      for (const due of dueMs) lateMs.push((await nextBlock()) - due);
      return lateMs;
    } finally {
      heads.close();
      await rpc.close();
    }
  };
  const isGood = (lateMs: number[]): boolean => Math.abs(medianOf(lateMs)) < MANY_MS;
  const lateMs = await attempts(lateAfter, isGood);
  t.ok(isGood(lateMs), `${lateMs.map(Math.round).join(", ")} ms`);
}

t.test("unanswered calls do not mean that there is no block", { timeout: 120_000 }, async (t) => {
  const HANGING = 3;
  // The first calls after the due time hang. A later call returns the block long after it was mined.
  await expectDueAfter(t, async ({ proxy, isSeen }) => {
    let calls = 0;
    proxy.behave = () => ((calls += 1) <= HANGING ? { do: "hold", until: isSeen } : { do: "pass" });
  });
});

t.test(
  "an overtaken response does not set the time of its block",
  { timeout: 120_000 },
  async (t) => {
    const AFTER_MS = 300;
    // One call hangs and is answered long after the block came; later calls return the old block in the meantime.
    await expectDueAfter(t, async ({ proxy }) => {
      const stale = await steady.publicClient.request({
        method: "eth_getBlockByNumber",
        params: ["latest", false],
      });
      let letGo = (): void => undefined;
      const isTime = new Promise<void>((resolve) => (letGo = resolve));
      let calls = 0;
      proxy.behave = () =>
        (calls += 1) === 1
          ? { do: "hold", until: isTime, forward: "after" }
          : { do: "answer", result: stale };
      await nextBlock();
      await sleep(AFTER_MS);
      letGo();
    });
  },
);

t.test("the newest block is known only until the next one may exist", async (t) => {
  const rpc = new ChainRpc({ urls: [steady.rpcUrl] });
  const heads = new HeadWatcher(rpc, CONFIGURED_MS);
  t.teardown(async () => {
    heads.close();
    await rpc.close();
  });
  t.equal(heads.current, undefined, "none was seen");
  const seen = await heads.refresh();
  t.equal(heads.current, seen);
  // According to the configured block time.
  await until(() => heads.current === undefined);
  const blocks = new Set<bigint>();
  heads.onHead(({ number }) => void blocks.add(number));
  heads.start();
  const release = heads.want();
  await until(() => blocks.size >= 5 && heads.nextDueMs(performance.now()) !== undefined, 30_000);
  // Nothing requests blocks any more, but by the schedule the next one is due after the last one seen.
  release();
  const last = heads.head;
  // According to the learned schedule.
  await until(() => heads.current === undefined);
  t.equal(heads.head, last, "it was not polled");
  await nextBlock();
  t.ok((await heads.newest()).number > (last?.number ?? 0n), "then it is requested");
});
