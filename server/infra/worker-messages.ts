/**
 * Messages between the worker processes of one command, through the primary process (server/primary.ts). No money
 * decision depends on them: a lost message costs a moment, and Postgres has the truth.
 */
import fp from "fastify-plugin";
import type { FastifyInstance } from "fastify";
import type { MetricObjectWithValues, MetricValue, Registry } from "prom-client";
import type { Role } from "../core/worker-settings.ts";
import { NotReady } from "./readiness.ts";

export type MetricsSnapshot = MetricObjectWithValues<MetricValue<string>>[];

export type ToPrimary =
  /** `here`: it receives messages from now on. */
  | { type: "here" | "migrated" | "ready" | "leave" | "pong" }
  | { type: "failed"; reason: string }
  | { type: "work"; chainId: number }
  | { type: "scrape"; id: number }
  | { type: "metrics"; id: number; metrics: MetricsSnapshot };

export type ToChild =
  | { type: "begin"; role: Role; name: string; world?: object | undefined }
  | { type: "lanes"; areUp: boolean }
  | { type: "work"; chainId: number }
  | { type: "collect"; id: number }
  | { type: "scraped"; id: number; text: string }
  | { type: "ping" }
  | { type: "stop"; isAnnounced: boolean };

/** If the primary is gone, the message is dropped, and this process ends as well. */
export function sendToPrimary(message: ToPrimary): void {
  if (process.connected) process.send?.(message, () => undefined);
}

/** The lanes, if another process has them. */
export interface LanesElsewhere {
  /** There is work for a lane, as soon as the transaction commits. */
  announce(chainId: number): void;
}

export interface Siblings {
  /** Undefined if the lanes are in this process. */
  lanes: LanesElsewhere | undefined;
  onWork(listener: (chainId: number) => void): void;
  /** The metrics of all processes, merged. */
  scrape(): Promise<string>;
}

declare module "fastify" {
  interface FastifyInstance {
    siblings: Siblings;
  }
}

/** The same interval at which lanes look for announced work. */
const ANNOUNCE_EVERY_MS = 2;
const SCRAPE_MS = 5_000;
/** While the lanes are being restarted for up to this long, the service stays ready: accepted payments wait. */
const LANES_AWAY_MS = 10_000;

export default fp(
  async (app) => {
    const { role } = app.config;
    if (role !== "accepting" && role !== "lanes") {
      app.decorate("siblings", {
        lanes: undefined,
        onWork: () => undefined,
        scrape: () => app.metrics.metrics(),
      });
      return;
    }
    const listener = listen(app);
    const scrapes = new Map<number, (text: string) => void>();
    let lastScrape = 0;
    // Until the lanes are up for the first time, the service is not ready.
    let lanesGoneMs = Number.NEGATIVE_INFINITY;
    app.decorate("siblings", {
      lanes: role === "lanes" ? undefined : lanesElsewhere(),
      onWork: (hear) => listener("work", ({ chainId }) => hear(chainId)),
      async scrape() {
        const id = (lastScrape += 1);
        const text = new Promise<string>((resolve, reject) => {
          scrapes.set(id, resolve);
          setTimeout(() => reject(new Error("the metrics were not collected")), SCRAPE_MS).unref();
        });
        sendToPrimary({ type: "scrape", id });
        return text.finally(() => scrapes.delete(id));
      },
    });
    listener("scraped", ({ id, text }) => scrapes.get(id)?.(text));
    listener("collect", ({ id }) => {
      void metricsSnapshot(app.metrics, role)
        .then((metrics) => sendToPrimary({ type: "metrics", id, metrics }))
        .catch((error: unknown) => app.log.warn({ err: error }, "metrics could not be read"));
    });
    if (role === "lanes") return;
    listener("lanes", ({ areUp }) => {
      lanesGoneMs = areUp ? Number.POSITIVE_INFINITY : performance.now();
    });
    app.readiness.add("lanes", async () => {
      if (performance.now() - lanesGoneMs > LANES_AWAY_MS)
        throw new NotReady("the process with the lanes is not running");
      return "in a process of their own";
    });
  },
  { name: "siblings" },
);

function lanesElsewhere(): LanesElsewhere {
  const announcedAtMs = new Map<number, number>();
  return {
    announce(chainId) {
      const now = performance.now();
      if (now - (announcedAtMs.get(chainId) ?? -ANNOUNCE_EVERY_MS) < ANNOUNCE_EVERY_MS) return;
      announcedAtMs.set(chainId, now);
      sendToPrimary({ type: "work", chainId });
    },
  };
}

/** Listens until the app is closed. */
function listen(app: FastifyInstance) {
  return <S extends ToChild["type"]>(
    type: S,
    listener: (message: Extract<ToChild, { type: S }>) => void,
  ): void => {
    const onMessage = (message: ToChild): void => {
      if (message.type === type) listener(message as Extract<ToChild, { type: S }>);
    };
    process.on("message", onMessage);
    app.addHook("onClose", async () => void process.off("message", onMessage));
  };
}

/**
 * Gauges with a value per process. All others show the state of the database or the lanes, so one process reports them.
 */
const OF_EACH = new Set([
  "purser_build_info",
  "purser_database_pool_size",
  "purser_database_connections",
  "purser_head_block",
  "purser_head_age_seconds",
]);
/** Metrics for which a sum is meaningless: the maximum of all processes is reported. */
const MOST =
  /^(purser_build_info|purser_head_\w+|nodejs_eventloop_lag_\w+|process_start_time_seconds)$/;

async function metricsSnapshot(registry: Registry, role: Role): Promise<MetricsSnapshot> {
  const metrics = registry
    .getMetricsAsArray()
    .filter(
      ({ name, type }) =>
        role === "lanes" ||
        String(type) !== "gauge" ||
        !name.startsWith("purser_") ||
        OF_EACH.has(name),
    );
  const snapshot: MetricsSnapshot = [];
  // In order: some metrics set the values of those after them.
  for (const metric of metrics) {
    const read = await (metric as unknown as { get(): Promise<MetricsSnapshot[number]> }).get();
    snapshot.push(MOST.test(read.name) ? { ...read, aggregator: "max" } : read);
  }
  return snapshot;
}
