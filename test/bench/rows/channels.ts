// Payment channels: the cost of verifying a voucher, and the gas of a channel from its deposit to the receiver's money.
import { fileURLToPath } from "node:url";
import { sign } from "../../../server/core/signatures.ts";
import { voucherDigest } from "../../../server/schemes/batch-settlement/index.ts";
import { channelWorld, type OpenChannel } from "../../facilitator/channel-bodies.ts";
import type { Body } from "../../facilitator/payments.ts";
import { channelPayer } from "../../paywall/channel-shop.ts";
import type { BenchContext, BenchRow, Figure, Name, Server, World } from "../context.ts";
import { cpuMsOf } from "../cpu.ts";
import { load, verifyOutcome } from "../load.ts";
import { figure, inRounds, median, timesAsMuch } from "../rounds.ts";
import { freePort } from "../../../server/local/free-port.ts";
import { testAccount } from "../../helpers/chain.ts";
import { openAgent } from "./x402-fetch.ts";
import { sentBy } from "../sent.ts";
import { launch } from "../world.ts";

const CHANNELS = 50;
/** More than the server's cache of signers has entries, so that every signature is verified. */
const VOUCHERS = 12_000;
const WARM_UP_MS = 8_000;
const DURATION_MS = 4_000;

/** Vouchers of several channels in turn, each with a higher ceiling than the one before. */
async function vouchersFor({ chain }: World): Promise<string[]> {
  const world = channelWorld(chain);
  const seller = world.seller();
  const channels: OpenChannel[] = [];
  for (let count = 0; count < CHANNELS; count += 1) channels.push(await world.open(seller));
  return Array.from({ length: VOUCHERS }, (_, index) => {
    const channel = channels[index % CHANNELS] as OpenChannel;
    const ceiling = BigInt(Math.floor(index / CHANNELS) + 1);
    const digest = Buffer.from(voucherDigest(chain.chainId, channel.id, ceiling).slice(2), "hex");
    return JSON.stringify(world.voucher(channel, ceiling, sign(digest, channel.key)));
  });
}

async function settled(server: Server, body: Body): Promise<void> {
  const response = await fetch(`${server.url}/settle`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer = (await response.json()) as { success?: boolean };
  if (answer.success !== true) throw new Error(JSON.stringify(answer));
}

/** A deposit, one claim and one settle to a receiver that was paid before. */
async function gasOfChannel(world: World, server: Server): Promise<number> {
  const { chain } = world;
  const made = channelWorld(chain);
  const seller = made.seller();
  await chain.mint(seller.receiver, 1n);
  const channel = await made.newChannel(seller);
  const fromBlock = (await chain.publicClient.getBlockNumber()) + 1n;
  await settled(server, await made.deposit(channel));
  await settled(server, await made.claim([{ channel, total: 10_000n }]));
  await settled(server, made.settle(seller));
  return Number((await sentBy(chain, server.relayers, fromBlock)).gasUsed);
}

/** A seller with each facilitator: our paywall on Postgres, and the published server with its storage in memory. */
async function sellersOf(world: World, closers: (() => unknown)[]) {
  const { chain, servers, databaseUrl } = world;
  const seller = (name: string, facilitator: Server | undefined) =>
    launch(
      {
        command: [process.execPath, "--import=tsx", SELLER],
        env: (port) => ({
          SELLER: name,
          FACILITATOR: facilitator?.url ?? "",
          DATABASE_URL: databaseUrl,
          CHAIN_ID: String(chain.chainId),
          USDC: chain.usdc,
          PORT: String(port),
          NODE_ENV: "production",
        }),
        readyPath: "/ready",
      },
      closers,
    );
  return {
    ours: await seller("ours", servers.ours),
    ...(servers.reference && { reference: await seller("reference", servers.reference) }),
  };
}
const SELLER = fileURLToPath(new URL("../channel-seller.ts", import.meta.url));

/** Stock clients, each with a channel of its own, fetch as fast as they can. */
async function paidFetches(context: BenchContext, channels: number): Promise<Figure[]> {
  const world = await context.world({ blockTimeSeconds: "auto" });
  const closers: (() => unknown)[] = [];
  try {
    const sellers = await sellersOf(world, closers);
    const payers: Partial<Record<Name, Awaited<ReturnType<typeof channelPayer>>[]>> = {};
    for (const name of Object.keys(sellers) as (keyof typeof sellers)[])
      payers[name] = await Promise.all(
        Array.from({ length: channels }, async () => {
          const payer = await channelPayer(world.chain, undefined, 10_000_000n);
          await payer.pay(`${sellers[name]?.url}/paid`);
          return payer;
        }),
      );
    const measured = await inRounds({ servers: sellers }, async (name) => {
      const { url, pid } = sellers[name as keyof typeof sellers] ?? sellers.ours;
      const cpuBefore = cpuMsOf([pid]);
      const startMs = performance.now();
      const untilMs = startMs + DURATION_MS;
      let count = 0;
      await Promise.all(
        (payers[name] ?? []).map(async (payer) => {
          while (performance.now() < untilMs) {
            const answer = await payer.pay(`${url}/paid`);
            if (answer.status !== 200) throw new Error(`${answer.status}: ${await answer.text()}`);
            await answer.body?.cancel();
            count += 1;
          }
        }),
      );
      const seconds = (performance.now() - startMs) / 1_000;
      return { perSecond: count / seconds, cpuMsEach: (cpuMsOf([pid]) - cpuBefore) / count };
    });
    return [
      figure(measured, {
        what: "rate",
        unit: "/s",
        better: "more",
        of: ({ perSecond }) => perSecond,
      }),
      figure(measured, {
        what: "the seller's processor each",
        unit: "ms",
        better: "less",
        of: ({ cpuMsEach }) => cpuMsEach,
      }),
    ];
  } finally {
    for (const close of closers.reverse()) await close();
  }
}

/** Agents with a channel each, and stock clients, fetch from the same seller as fast as they can. */
async function agentsFetches(context: BenchContext, channels: number): Promise<Figure[]> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const world = await context.world({
    blockTimeSeconds: "auto",
    env: { FETCH_PRIVATE_ORIGINS: url, RATE_LIMITS: "fetch=1000000,agent=1000000" },
  });
  const { chain, servers, databaseUrl } = world;
  const closers: (() => unknown)[] = [];
  try {
    const payTo = testAccount(901).address;
    const seller = {
      SELLER: "ours",
      PAY_TO: payTo,
      FACILITATOR: servers.ours.url,
      DATABASE_URL: databaseUrl,
      CHAIN_ID: String(chain.chainId),
      USDC: chain.usdc,
      NODE_ENV: "production",
      PORT: String(port),
    };
    const command = [process.execPath, "--import=tsx", SELLER];
    await launch({ command, env: () => seller, port, readyPath: "/ready" }, closers);
    const rules = { channelHeld: "100", channelDelay: 86_400 };
    const fetchers: Partial<Record<Name, (() => Promise<Response>)[]>> = {
      ours: [],
      reference: [],
    };
    for (let count = 0; count < channels; count += 1) {
      const agent = await openAgent(world, payTo, rules);
      await chain.mint([agent.walletAddress], 10_000_000n);
      fetchers.ours?.push(() =>
        fetch(`${world.ours}/api/agents/x402-fetch`, {
          method: "POST",
          headers: { authorization: `Bearer ${agent.apiKey}`, "content-type": "application/json" },
          body: JSON.stringify({ url: `${url}/paid` }),
        }),
      );
      const payer = await channelPayer(chain, undefined, 10_000_000n);
      fetchers.reference?.push(() => payer.pay(`${url}/paid`));
    }
    const paid = async (one: () => Promise<Response>): Promise<number> => {
      const startMs = performance.now();
      const answer = await one();
      const text = await answer.text();
      if (answer.status !== 200) throw new Error(`${answer.status}: ${text}`);
      return performance.now() - startMs;
    };
    for (const list of Object.values(fetchers)) for (const one of list) await paid(one);
    const measured = await inRounds({ servers: fetchers }, async (name) => {
      const cpuBefore = servers.ours.cpuMs();
      const startMs = performance.now();
      const untilMs = startMs + DURATION_MS;
      const each: number[] = [];
      await Promise.all(
        (fetchers[name] ?? []).map(async (one) => {
          while (performance.now() < untilMs) each.push(await paid(one));
        }),
      );
      const seconds = (performance.now() - startMs) / 1_000;
      return {
        perSecond: each.length / seconds,
        p50Ms: median(each),
        cpuMsEach: (servers.ours.cpuMs() - cpuBefore) / each.length,
      };
    });
    return [
      figure(measured, {
        what: "rate",
        unit: "/s",
        better: "more",
        of: ({ perSecond }) => perSecond,
      }),
      figure(measured, { what: "p50", unit: "ms", better: "less", of: ({ p50Ms }) => p50Ms }),
      figure(measured, {
        what: "our server's processor each",
        unit: "ms",
        better: "less",
        of: ({ cpuMsEach }) => cpuMsEach,
      }),
    ];
  } finally {
    for (const close of closers.reverse()) await close();
  }
}

export const rows: BenchRow[] = [
  ...[1, 50].map((channels): BenchRow => ({
    name: `agents' paid fetches through ${channels} channel${channels === 1 ? "" : "s"}`,
    run: (context) => agentsFetches(context, channels),
  })),
  ...[1, 50].map((channels): BenchRow => ({
    name: `paid fetches through ${channels} channel${channels === 1 ? "" : "s"}, one at a time in each`,
    run: (context) => paidFetches(context, channels),
  })),
  {
    name: "vouchers of 50 channels, 64 in flight",
    async run(context) {
      const world = await context.world();
      const bodies = await vouchersFor(world);
      const measured = await inRounds(world, async (name) => {
        const server = world.servers[name] ?? world.servers.ours;
        const options = { url: `${server.url}/verify`, bodies, inFlight: 64 };
        await load({ ...options, outcomeOf: verifyOutcome, durationMs: WARM_UP_MS });
        const before = server.cpuMs();
        const { perSecond, count, outcomes } = await load({
          ...options,
          outcomeOf: verifyOutcome,
          durationMs: DURATION_MS,
        });
        if (outcomes["valid"] !== count) throw new Error(JSON.stringify(outcomes));
        return { perSecond, cpuMsEach: (server.cpuMs() - before) / count };
      });
      return [
        figure(measured, {
          what: "rate",
          unit: "/s",
          better: "more",
          of: ({ perSecond }) => perSecond,
          target: {
            label: ">= 8x reference",
            reached: ({ ours, reference }) => timesAsMuch(ours, reference) >= 8,
          },
        }),
        figure(measured, {
          what: "processor each",
          unit: "ms",
          better: "less",
          of: ({ cpuMsEach }) => cpuMsEach,
        }),
      ];
    },
  },
  {
    name: "gas of a channel with one deposit, claim and settle",
    async run(context) {
      const world = await context.world({ blockTimeSeconds: "auto" });
      const measured = await inRounds(world, (name) =>
        gasOfChannel(world, world.servers[name] ?? world.servers.ours),
      );
      const each = (payments: number, most?: number) =>
        figure(measured, {
          what: `each of ${payments} payments`,
          unit: "gas",
          better: "less",
          of: (gas) => gas / payments,
          ...(most && {
            target: { label: `<= ${most}`, reached: ({ ours }) => ours <= most },
          }),
        });
      return [each(10), each(100), each(1_000, 300), each(10_000, 30)];
    },
  },
];
