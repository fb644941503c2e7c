import type { FastifyInstance } from "fastify";
import fp from "fastify-plugin";
import { connectionsOf } from "../../core/worker-settings.ts";
import { Counter, type Registry } from "prom-client";
import {
  createPool,
  TIMEOUTS,
  surviveLostConnections,
  type Pool,
  type PoolOptions,
} from "./pool.ts";
import { createPrisma, type PrismaClient } from "./prisma.ts";
import { afterStartup } from "../after-startup.ts";
import { registerGauges } from "../telemetry.ts";
import { onPromotion } from "./primary.ts";
import { ReadReplica, type Reading } from "./read-replica.ts";
import { readDurability } from "./settings.ts";
import { SilenceWatch } from "./silence.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** For SQL that Prisma cannot express, or not fast enough (README, Database). */
    pool: Pool;
    /**
     * The settlement engine's own pool: many requests cannot keep a lane from its lease, or a payment from its proof.
     */
    enginePool: Pool;
    /** The pool under `prisma`. */
    prismaPool: Pool;
    /** Shared by all connections of this process: a silent database that one connection detects counts for all. */
    silence: SilenceWatch;
    /** For all ordinary reads and writes. */
    prisma: PrismaClient;
    /**
     * For lists, sums and exports, on a read replica where there is one. Never for what decides about money or access,
     * nor for the answer to a write.
     */
    reading: Reading;
  }
}

/**
 * What a burst of settlements uses of each pool at once. These connections stay open, so that the first payment after a
 * quiet hour finds them.
 */
const KEPT = 4;
/** A read replica that does not report its position within this time is not used. */
const REPLICA_ANSWER_MS = 750;

export default fp(
  async (app) => {
    const { databaseUrl, databasePooledUrl } = app.config;
    if (databaseUrl === undefined)
      throw new Error("databaseUrl must be resolved before the app is built");
    const silence = new SilenceWatch(() =>
      app.log.warn("a database connection stopped responding; reopening all connections"),
    );
    const open = (maxConnections: number, options: PoolOptions = {}): Pool => {
      const url = options.isPooled ? (databasePooledUrl ?? databaseUrl) : databaseUrl;
      const made = createPool(url, { maxConnections, silence, ...options });
      surviveLostConnections(made, (error) =>
        app.log.warn({ err: error }, "database connection lost"),
      );
      return made;
    };
    // The engine, its listeners and the jobs need sessions, so they connect to Postgres directly.
    const isPooled = databasePooledUrl !== undefined;
    const { money, prisma: ordinary, engine } = connectionsOf(app.config);
    const pool = open(money, { timeouts: TIMEOUTS.money, isPooled, keeps: KEPT });
    const prismaPool = open(ordinary, { applicationName: "purser prisma", isPooled });
    const enginePool = open(engine, {
      applicationName: "purser engine",
      timeouts: TIMEOUTS.engine,
      keeps: KEPT,
    });
    const prisma = createPrisma(prismaPool);
    // Loading the query compiler takes a sixth of the start, so it waits until after the first responses, and still
    // comes before a request needs it. Nothing is sent to the database yet.
    afterStartup(app, () => {
      prisma.$connect().catch((err: unknown) => app.log.warn({ err }, "Prisma is not loaded yet"));
    });
    app.decorate("silence", silence);
    app.decorate("pool", pool);
    app.decorate("enginePool", enginePool);
    app.decorate("prismaPool", prismaPool);
    app.decorate("prisma", prisma);
    app.decorate("reading", openReading(app, ordinary));
    const closing = new AbortController();
    countPromotions(app.metrics, pool, closing.signal);
    app.addHook("onClose", async () => {
      closing.abort();
      await prisma.$disconnect();
      await Promise.all([pool, prismaPool, enginePool].map((each) => each.end()));
    });
  },
  { name: "db" },
);

/** The pools of the read replica, if there is one. */
function openReading(app: FastifyInstance, maxConnections: number): Reading {
  const { databaseReadUrl } = app.config;
  if (databaseReadUrl === undefined) return (read) => read(app.prisma);
  // Not the watch of the primary's connections: they are not suspect when this server is silent.
  const silence = new SilenceWatch();
  const open = (applicationName: string, options: PoolOptions): Pool => {
    const pool = createPool(databaseReadUrl, {
      applicationName,
      silence,
      isReadOnly: true,
      isStandby: true,
      ...options,
    });
    surviveLostConnections(pool, (error) =>
      app.log.warn({ err: error }, "read replica connection lost"),
    );
    return pool;
  };
  const pool = open("purser reads", { maxConnections });
  const status = open("purser reads status", { maxConnections: 4, answerMs: REPLICA_ANSWER_MS });
  const prisma = createPrisma(pool);
  const replica = new ReadReplica({
    primary: { sql: app.prismaPool, prisma: app.prisma },
    replica: { status, prisma },
    metrics: app.metrics,
    nowMs: () => performance.now(),
    log: app.log,
  });
  const closing = new AbortController();
  let watching: Promise<void> | undefined;
  app.addHook("onReady", async () => {
    watching = replica.watch(closing.signal);
  });
  app.addHook("onClose", async () => {
    closing.abort();
    await watching;
    await prisma.$disconnect();
    await Promise.all([pool.end(), status.end()]);
  });
  return (read) => replica.read(read);
}

function countPromotions(metrics: Registry, pool: Pool, signal: AbortSignal): void {
  const promotions = new Counter({
    name: "purser_database_promotions_total",
    help: "Times that another database server was promoted under this process.",
    registers: [metrics],
  });
  registerGauges(metrics, {
    labelNames: [],
    rows: async () => [{ labels: {}, ...(await readDurability(pool)) }],
    gauges: {
      purser_database_commits_waiting: [
        "Commits of this service that waited for a standby for more than 2 s.",
        ({ waiting }) => waiting,
      ],
    },
  });
  onPromotion(() => promotions.inc(), signal);
}
