/** The settlement plugin: wires the engine into the server, and reports its readiness and its metrics. */
import { setTimeout as sleep } from "node:timers/promises";
import fp from "fastify-plugin";
import type { FastifyInstance } from "fastify";
import { Counter, Histogram, type Registry } from "prom-client";
import { formatGas, GAS_SHARES, PLAIN_GAS } from "../../core/gas.ts";
import { ApiError } from "../../errors.ts";
import { afterStartup } from "../../infra/after-startup.ts";
import { NotReady } from "../../infra/readiness.ts";
import { readRelayers, type Relayer } from "../../infra/relayer-signer.ts";
import { registerGauges } from "../../infra/telemetry.ts";
import { WITHDRAWAL_GAS } from "../../core/channel-gas.ts";
import { type ChainEngine, NeedsFunds } from "./chain-engine.ts";
import type { EngineMeter, FaultPoint } from "./context.ts";
import { RunningEngine } from "./engine.ts";
import { readGasAccounts } from "./gas-store.ts";
import { countQueued } from "./store.ts";
import type { Settlement } from "./types.ts";
import { classNameOf, readOutstanding, readWork } from "./work-store.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** The engine that moves all money: it accepts signed authorizations and reports their outcomes. */
    settlement: Settlement;
    /** The accounts that pay gas. */
    relayers: readonly Relayer[];
    /** Set only by tests, which stop the process at a named point. */
    settlementFaults: { at?: (point: FaultPoint) => Promise<void> };
    /** What the accounts that pay gas on this network can pay for. Throws while its nodes do not respond. */
    laneFunds(chainId: number): Promise<LaneFunds[]>;
  }
}

export default fp(
  async (app) => {
    const { config } = app;
    const meterOf = engineMeters(app.metrics);
    const relayers = await readRelayers(config, app.kms);
    app.decorate("relayers", relayers);
    const faults: FastifyInstance["settlementFaults"] = {};
    app.decorate("settlementFaults", faults);
    const engine = new RunningEngine({
      pool: app.enginePool,
      silence: app.silence,
      connectionString: config.databaseUrl ?? "",
      signers: relayers.map((account) => ({ account })),
      timings: config.timings,
      gasCapPerItem: config.gasCapPerItem,
      forcedCancelsPerDay: config.forcedCancelsPerDay,
      chains: app.chains.all.map(({ network }) => {
        const { rpc, heads } = app.chainReads.of(network.chainId);
        return {
          network,
          rpc,
          heads,
          isVerified: () => app.chains.verified.has(network.chainId),
          meter: meterOf(network.id),
        };
      }),
      log: app.log.child({ part: "engine" }),
      assertFunctions: () => app.functions.assertInstalled(),
      fault: async (point) => faults.at?.(point),
    });
    app.decorate("settlement", engine.settlement);
    app.decorate("laneFunds", async (chainId: number) => {
      const chain = engine.chains.get(chainId);
      return chain ? readFunds(chain) : [];
    });
    watchLanes(app.metrics, engine);
    watchWork(app.metrics, engine);
    for (const [, chain] of engine.chains) {
      app.readiness.add(`relayer:${chain.ctx.network.id}`, async () => {
        await chain.assertAvailable({}).catch((error: unknown) => {
          // The message is written for API clients, so the public readiness report may contain it. The relayers'
          // addresses are public, too.
          if (!(error instanceof ApiError)) throw error;
          const todo = error.cause instanceof NeedsFunds ? ` ${error.cause.message}` : "";
          throw new NotReady(`${error.message}${todo}`);
        });
        const { length } = chain.lanes.filter(({ sendsOnlyBound }) => !sendsOnlyBound);
        return `${length} funded ${length === 1 ? "lane" : "lanes"}`;
      });
    }
    const stopping = new AbortController();
    app.addHook("onReady", async () => {
      await engine.start();
      // The custody process may start later.
      void addChannelLanes(app, engine, stopping.signal);
    });
    // Once for each start: an operator may have forgotten to fund a new key.
    if ((config.worker ?? "1") === "1")
      afterStartup(app, () => {
        for (const [, chain] of engine.chains)
          chain.assertAvailable({}).catch((error: unknown) => {
            if (error instanceof ApiError && error.cause instanceof NeedsFunds)
              app.log.error({ network: chain.ctx.network.id }, `No gas: ${error.cause.message}`);
          });
      });
    app.addHook("preClose", () => {
      stopping.abort();
      return engine.stop();
    });
  },
  { name: "settlement" },
);

const ASK_AGAIN_MS = 5_000;

/** The accounts that withdraw from channels of agents pay gas, too; only custody has their keys. */
async function addChannelLanes(
  app: FastifyInstance,
  engine: RunningEngine,
  stopping: AbortSignal,
): Promise<void> {
  while (!stopping.aborted) {
    const accounts = await app.custody.channelAccounts().catch((err: unknown) => {
      app.log.warn({ err }, "the accounts of payment channels were not read");
    });
    if (stopping.aborted) return;
    if (accounts) {
      for (const account of accounts) engine.addLane({ account, sendsOnlyBound: true });
      return;
    }
    await sleep(ASK_AGAIN_MS, undefined, { ref: false, signal: stopping }).catch(() => undefined);
  }
}

function engineMeters(registry: Registry): (network: string) => EngineMeter {
  const registers = [registry];
  const labelNames = ["network"];
  const batch = new Histogram({
    name: "purser_settlement_batch_size",
    help: "Authorizations per transaction",
    labelNames,
    buckets: [1, 2, 5, 10, 20, 40, 60, 80, 99, 100],
    registers,
  });
  const gas = new Histogram({
    name: "purser_settlement_gas",
    help: "Gas per settled authorization, by transaction",
    labelNames,
    buckets: [40_000, 45_000, 50_000, 60_000, 70_000, 80_000, 100_000, 150_000, 300_000],
    registers,
  });
  const paid = new Counter({
    name: "purser_gas_usdc_total",
    help: "Gas cost in USDC, by the kind of the transaction's first payment; counted at inclusion",
    labelNames: ["network", "kind"],
    registers,
  });
  const latency = new Histogram({
    name: "purser_settlement_seconds",
    help: "Time from acceptance to the returned result: in a block of the network's inclusion depth",
    labelNames,
    buckets: [0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 60],
    registers,
  });
  const landing = new Histogram({
    name: "purser_settlement_landed_seconds",
    help: "Time from acceptance to inclusion in a block, by class",
    labelNames: ["network", "class"],
    buckets: [0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 60, 300],
    registers,
  });
  const givenUp = new Counter({
    name: "purser_transactions_given_up_total",
    help: "Nonces used by a transfer of the lane to itself, because nodes rejected the transaction for good",
    labelNames,
    registers,
  });
  const outcomes = new Counter({
    name: "purser_settlements_total",
    help: "Settlements made final by this process, by outcome",
    labelNames: ["network", "status"],
    registers,
  });
  const again = new Counter({
    name: "purser_transactions_sent_again_total",
    help: "Transactions sent again: re-sent from stored bytes, or re-priced",
    labelNames: ["network", "how"],
    registers,
  });
  const corrections = new Counter({
    name: "purser_corrections_total",
    help: "Returned payment outcomes that later proof contradicted: check each one",
    labelNames: ["network", "kind"],
    registers,
  });
  const moved = new Counter({
    name: "purser_settled_usdc_total",
    help: "USDC settled by transactions of this process, by class",
    labelNames: ["network", "class"],
    registers,
  });
  const unseen = new Counter({
    name: "purser_chain_unseen_total",
    help: "Alarms because no node returns the data that payments wait for (chain_unseen in the log); repeated after ten minutes",
    labelNames,
    registers,
  });
  return (network) => {
    // Initialised to zero, so that the first alarm shows as an increase.
    for (const counter of [givenUp, unseen]) counter.inc({ network }, 0);
    return {
      batch: (items) => batch.observe({ network }, items),
      settled: (count, gasUsed) => {
        if (count > 0) gas.observe({ network }, Number(gasUsed) / count);
      },
      paid: (kind, usdc) => paid.inc({ network, kind }, usdc),
      timeToResult: (ms) => latency.observe({ network }, ms / 1_000),
      moved: (kind, usdc) => moved.inc({ network, class: classNameOf(kind) }, usdc),
      unseen: () => unseen.inc({ network }),
      finished: (status, count) => outcomes.inc({ network, status }, count),
      corrected: (kind) => corrections.inc({ network, kind }),
      landed: (kind, ms) => landing.observe({ network, class: classNameOf(kind) }, ms / 1_000),
      repriced: () => again.inc({ network, how: "repriced" }),
      resent: () => again.inc({ network, how: "resent" }),
      givenUp: () => givenUp.inc({ network }),
    };
  };
}

/** The lanes of this process, and the gas that they pay for. */
function watchLanes(registry: Registry, engine: RunningEngine): void {
  registerGauges(registry, {
    labelNames: ["network", "lane"],
    rows: () =>
      [...engine.chains.values()].flatMap(({ lanes, ctx }) =>
        lanes.map((lane) => ({ labels: { network: ctx.network.id, lane: lane.address }, lane })),
      ),
    gauges: {
      purser_lane_balance: [
        "Native balance of the relayer, in whole coins",
        ({ lane }) => (lane.balanceWei === undefined ? undefined : Number(lane.balanceWei) / 1e18),
      ],
      purser_lane_in_flight: [
        "Transactions of this lane that are not in a block yet",
        ({ lane }) => lane.inFlight,
      ],
      purser_lane_held: [
        "1 where this process holds the lease of the lane",
        ({ lane }) => (lane.held ? 1 : 0),
      ],
    },
  });
  watchFunds(registry, engine);
  // Read from the database, so every replica reports the same figures. For single accounts see the query in
  // docs/operations/gas-accounts.md.
  registerGauges(registry, {
    labelNames: ["network", "share"],
    rows: () =>
      ofChains(engine, async ({ pool, network }, chainId) => {
        const shares = await readGasAccounts(pool, chainId, GAS_SHARES);
        return shares.map((share) => ({
          labels: { network: network.id, share: share.account },
          ...share,
        }));
      }),
    gauges: {
      purser_gas_share_used_usdc: [
        "Total gas cost in USDC, by budget share",
        ({ used }) => Number(formatGas(used)),
      ],
      purser_gas_share_left: [
        "Remaining part of a share of the daily gas budget: 1 is all of it; at 0 its payments are refused",
        ({ left, perDay }) => (perDay > 0n ? Number(left) / Number(perDay) : 0),
      ],
    },
  });
}

async function ofChains<Row>(
  { chains }: RunningEngine,
  read: (ctx: ChainEngine["ctx"], chainId: number) => Promise<Row[]>,
): Promise<Row[]> {
  const rows: Row[] = [];
  for (const [chainId, { ctx }] of chains) rows.push(...(await read(ctx, chainId)));
  return rows;
}

/** What waits. From the database: every replica reports the same. */
function watchWork(registry: Registry, engine: RunningEngine): void {
  registerGauges(registry, {
    labelNames: ["network"],
    rows: () =>
      ofChains(engine, async ({ pool, network }, chainId) => [
        { labels: { network: network.id }, count: await countQueued(pool, chainId) },
      ]),
    gauges: {
      purser_settlement_queue: ["Authorizations that wait to be relayed", ({ count }) => count],
    },
  });
  const waitingBy = (label: string, read: typeof readWork) => ({
    labelNames: ["network", label],
    rows: () =>
      ofChains(engine, async ({ pool, network }, chainId) =>
        [...(await read(pool, chainId))].map(([name, waiting]) => ({
          labels: { network: network.id, [label]: name },
          ...waiting,
        })),
      ),
  });
  registerGauges(registry, {
    ...waitingBy("class", readWork),
    gauges: {
      purser_settlement_open: [
        "Accepted authorizations that are not in a counted block yet, by class",
        ({ count }) => count,
      ],
      purser_settlement_oldest_seconds: [
        "Time from which the oldest one waits; 0 when none waits",
        ({ oldestSeconds }) => oldestSeconds,
      ],
    },
  });
  registerGauges(registry, {
    ...waitingBy("status", readOutstanding),
    gauges: {
      purser_payments_outstanding: [
        "Agents' reserved payments without a known outcome",
        ({ count }) => count,
      ],
      purser_payments_oldest_seconds: [
        "Age of the oldest of them; 0 when there is none",
        ({ oldestSeconds }) => oldestSeconds,
      ],
    },
  });
}

/** What the account of a lane can pay for; one that only withdraws from channels pays for no payment. */
export interface LaneFunds {
  network: string;
  lane: string;
  balanceWei: bigint;
  payments?: number;
  withdrawals?: number;
}

/**
 * Measured in payments, because coins differ in value between networks and gas prices change every day: at twice the
 * current price.
 */
async function readFunds(chain: ChainEngine): Promise<LaneFunds[]> {
  const baseFeeWei = chain.ctx.heads.head?.baseFeeWei ?? 0n;
  const gasWei = 2n * baseFeeWei + (await chain.priorityFeeWei());
  return Promise.all(
    chain.lanes.map(async (lane) => {
      const balanceWei = await lane.readBalance();
      const enoughFor = (gas: bigint): number => Number(balanceWei / (gas * gasWei || 1n));
      return {
        network: chain.ctx.network.id,
        lane: lane.address,
        balanceWei,
        ...(lane.sendsOnlyBound
          ? { withdrawals: enoughFor(WITHDRAWAL_GAS) }
          : { payments: enoughFor(PLAIN_GAS) }),
      };
    }),
  );
}

function watchFunds(registry: Registry, engine: RunningEngine): void {
  const left = new Map<string, LaneFunds & { labels: Record<string, string> }>();
  const look = async (chain: ChainEngine): Promise<void> => {
    for (const funds of await readFunds(chain)) {
      const { network, lane } = funds;
      left.set(`${network} ${lane}`, { ...funds, labels: { network, lane } });
    }
  };
  registerGauges(registry, {
    labelNames: ["network", "lane"],
    rows: () => {
      // Shown by the next scrape, because nodes may be slow.
      for (const chain of engine.chains.values()) look(chain).catch(() => undefined);
      return [...left.values()];
    },
    gauges: {
      purser_lane_payments_left: [
        "Number of single payments whose gas the relayer can pay at twice the current price",
        ({ payments }) => payments,
      ],
      purser_lane_withdrawals_left: [
        "Number of withdrawals from agents' channels whose gas the account can pay at twice the current price",
        ({ withdrawals }) => withdrawals,
      ],
    },
  });
}
