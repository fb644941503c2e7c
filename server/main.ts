/**
 * Starts the server and shuts it down on SIGTERM or SIGINT (graceful shutdown, draining): configuration, local mode if
 * needed, the app, and the port.
 */
import cluster from "node:cluster";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import type { FastifyInstance } from "fastify";
import pino, { type LoggerOptions } from "pino";
import { migrate } from "./infra/db/migrate.ts";
import { MigrationError } from "./infra/db/migration-error.ts";
import { checkDatabase, UnfitDatabase } from "./infra/db/settings.ts";
import { ConfigError, keysWithoutEffect, loadConfig, type Config } from "./config.ts";
import { nodeAdvice } from "./core/node-version.ts";
import { STARTUP_QUIET_MS } from "./infra/after-startup.ts";
import { hideConfigured, loggerOptions } from "./infra/telemetry.ts";
import { BUILD, VERSION } from "./infra/version.ts";
import { sendToPrimary, type ToWorker } from "./infra/worker-channel.ts";
import { assertPortFree } from "./local/free-port.ts";
import { StartError } from "./local/start-error.ts";
import { withFacts, withLocalWorld, type LocalWorld, type WorldFacts } from "./local/world.ts";
import type { Primary } from "./primary.ts";

const SHUTDOWN_LIMIT_MS = 30_000;
/** With several processes: longer than the limit of each, and then the local services. */
const SHUTDOWN_OF_ALL_MS = 33_000;
const LEAVING_MS = 4_000;
/** Under npm one Ctrl-C arrives twice: from the terminal, and passed on by npm a moment later. */
const SAME_SIGNAL_MS = 1_000;
const STOP_SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

interface Running {
  isStopping: boolean;
  /** A requested stop is carried out at once; before that, the start itself looks at `isStopping`. */
  isUp: boolean;
  /** Removes secrets from reported failures. */
  hide?: (text: string) => string;
  app?: FastifyInstance;
  /** Set in the parent of several processes, which serves no requests. */
  primary?: Primary;
  world?: LocalWorld | undefined;
  /** Load balancers are notified (by readiness) before this process stops. */
  isAnnounced?: boolean;
}

export async function main(): Promise<void> {
  const running: Running = { isStopping: false, isUp: false };
  const { isWorker } = cluster;
  try {
    if (isWorker) {
      followParent(running);
      await startWorker(running);
    } else {
      stopOnSignals(running);
      await start(running);
    }
  } catch (error) {
    await shutDown(running);
    const { hide = (text: string) => text } = running;
    const reason = hide(describe(error));
    if (isWorker) await sendToPrimary({ type: "failed", reason });
    else console.error(`Purser could not start: ${reason}`);
    process.exit(1);
  }
}

async function start(running: Running): Promise<void> {
  const loaded = loadConfig(process.env);
  const notes = [nodeAdvice(process.versions.node) ?? [], keysWithoutEffect(process.env)].flat();
  for (const note of notes) console.warn(`Warning: ${note}`);
  const { workers } = loaded;
  // Most of the code is loaded while the local services start. A failure to load is handled by the await in `serve`.
  const loading = workers === 1 ? import("./app.ts") : undefined;
  loading?.catch(() => undefined);
  running.hide = hideConfigured(loaded);
  await assertPortFree(loaded.host, loaded.port);
  const { config, world } = await withLocalWorld(loaded, (line) => console.log(line));
  running.world = world;
  if (running.isStopping) return finish(running);
  await applyMigrations(config);
  if (running.isStopping) return finish(running);
  await (workers === 1 ? serve(running, config, loading) : startWorkers(running, config));
  if (!running.isStopping) console.log(banner(config));
}

async function serve(
  running: Running,
  config: Config,
  loading = import("./app.ts"),
): Promise<void> {
  running.isAnnounced = config.mode === "production";
  const { buildApp } = await loading;
  running.app = await buildApp(config);
  if (running.isStopping) return finish(running);
  await running.app.listen({ host: config.host, port: config.port });
  if (running.isStopping) return finish(running);
  running.isUp = true;
  void noteChanges(running.app, config);
}

async function startWorkers(running: Running, config: Config): Promise<void> {
  const log = pino(loggerOptions({ ...config, worker: "primary" }) as LoggerOptions);
  const { Primary } = await import("./primary.ts");
  if (running.isStopping) return finish(running);
  running.primary = new Primary({
    workers: config.workers,
    // As JSON: only facts, without the function that stops the services.
    environment: running.world ? { PURSER_LOCAL_WORLD: JSON.stringify(running.world) } : {},
    log: (fields, text) => log.error(fields, text),
    onGivenUp: (reason) => {
      console.error(`Purser stops: ${reason}.`);
      void finish(running, 1);
    },
  });
  running.isUp = true;
  await running.primary.start();
}

/** One of several processes. Its parent has started the local services and applied the migrations. */
async function startWorker(running: Running): Promise<void> {
  const { PURSER_WORKER: worker, PURSER_LOCAL_WORLD: world } = process.env;
  // Generated keys, which no child process needs.
  delete process.env["PURSER_LOCAL_WORLD"];
  process.title = `purser worker ${worker}`;
  const loaded = { ...loadConfig(process.env), worker };
  running.hide = hideConfigured(loaded);
  const isLocal = world !== undefined && loaded.mode === "local";
  await serve(running, isLocal ? withFacts(loaded, JSON.parse(world) as WorldFacts) : loaded);
  await sendToPrimary({ type: "ready" });
}

/** A service manager signals the whole group, but only the parent stops its workers: it knows when all of them stop. */
function followParent(running: Running): void {
  for (const signal of STOP_SIGNALS) process.on(signal, () => undefined);
  process.on("message", ({ type }: ToWorker) => {
    if (type === "ping") void sendToPrimary({ type: "pong" });
    if (type === "collect" && running.app) void sendMetrics(running.app);
    if (type === "stop") requestStop(running);
  });
}

async function sendMetrics({ metrics, log }: FastifyInstance): Promise<void> {
  try {
    await sendToPrimary({ type: "metrics", metrics: await metrics.getMetricsAsJSON() });
  } catch (error) {
    log.warn({ err: error }, "metrics could not be read");
  }
}

/**
 * In the background after the start: computing an entry takes slow hashes. All workers have the same configuration, so
 * only the first one does it.
 */
async function noteChanges({ prisma, log }: FastifyInstance, config: Config): Promise<void> {
  if ((config.worker ?? "1") !== "1") return;
  await delay(STARTUP_QUIET_MS);
  try {
    const { noteBoot } = await import("./plugins/audit/boots.ts");
    const changed = await noteBoot(prisma, config, process.env);
    if (changed.length > 0) log.info({ changed }, "the configuration changed since the last start");
  } catch (error) {
    log.warn({ err: error }, "the changed configuration could not be recorded");
  }
}

/** Under an advisory lock, so that replicas may start together; only on a database with the required settings. */
async function applyMigrations(config: Config): Promise<void> {
  const { databaseUrl: connectionString } = config;
  if (connectionString === undefined) throw new StartError("no database is configured.");
  try {
    const notes = await checkDatabase(config);
    for (const note of notes) console.warn(`Warning: ${note}`);
    const { migrations, functions, newerFunctions } = await migrate({ connectionString });
    if (newerFunctions !== undefined)
      console.log(
        `The database has functions of a newer build (version ${newerFunctions}). They stay and also work with this build.`,
      );
    if (migrations.length + functions.length > 0)
      console.log(`Applied ${migrations.length} migrations and ${functions.length} functions.`);
  } catch (error) {
    const isOperatorError = error instanceof MigrationError || error instanceof UnfitDatabase;
    if (isOperatorError) throw new StartError(error.message, { cause: error });
    throw new StartError(`the database cannot be used: ${reasonOf(error)}`, { cause: error });
  }
}

/** The first Ctrl-C drains and stops; the second one exits at once (the wardens still stop the children). */
function stopOnSignals(running: Running): void {
  let firstAtMs = 0;
  const stop = (): void => {
    if (running.isStopping) {
      if (performance.now() - firstAtMs > SAME_SIGNAL_MS) process.exit(130);
      return;
    }
    firstAtMs = performance.now();
    console.log("Stopping... (Ctrl-C again to stop immediately)");
    requestStop(running);
  };
  for (const signal of STOP_SIGNALS) process.on(signal, stop);
}

function requestStop(running: Running): void {
  if (running.isStopping) return;
  running.isStopping = true;
  if (running.isUp) void finish(running);
}

async function finish(running: Running, failed = 0): Promise<void> {
  const { app, primary } = running;
  const limit = setTimeout(() => process.exit(1), primary ? SHUTDOWN_OF_ALL_MS : SHUTDOWN_LIMIT_MS);
  if (app?.server.listening && running.isAnnounced) {
    // Load balancers check readiness every few seconds; until then, requests are served as usual.
    app.readiness.leave();
    await delay(LEAVING_MS);
  }
  const clean = await shutDown(running);
  clearTimeout(limit);
  process.exit(clean ? failed : 1);
}

/** The app before its services: the last responses still need the database and the chain. */
async function shutDown(running: Running): Promise<boolean> {
  const results = [
    ...(await Promise.allSettled([running.primary?.stop()])),
    ...(await Promise.allSettled([running.app?.close()])),
    ...(await Promise.allSettled([running.world?.stop()])),
  ];
  const failures = results.filter((result) => result.status === "rejected");
  const { hide = (text: string) => text } = running;
  for (const { reason } of failures) console.error(`While stopping: ${hide(describe(reason))}`);
  const [workers] = results;
  return failures.length === 0 && !(workers?.status === "fulfilled" && workers.value === false);
}

/** One line for errors that a person can fix. Anything else is a defect of ours and keeps its cause. */
function describe(error: unknown): string {
  if (error instanceof ConfigError || error instanceof StartError) return error.message;
  return reasonOf(error);
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code, port } = error as NodeJS.ErrnoException & { port?: number };
  if (code === "EADDRINUSE") return `port ${port} is in use.`;
  // A refused connection to a host with two addresses has a code and no message.
  return error.message.split("\n")[0] || code || error.name;
}

/** What the person at the terminal needs next. */
function banner(config: Config): string {
  const [network] = config.networks;
  const chain = `${network.name} (${network.id})${config.local ? ", a local chain" : ""}`;
  const next = config.local
    ? [
        "  Open the web app, choose the demo wallet, create an agent and fund it from the faucet;",
        `  or give an agent these instructions: ${config.publicUrl}/skill.md`,
      ]
    : ["  Sign in with your wallet in the web app, create an agent and fund its address."];
  return [
    "",
    `  Purser runs at ${config.publicUrl}`,
    "",
    `  Version      ${VERSION}, commit ${BUILD.commit}${BUILD.builtAt === null ? "" : `, built ${BUILD.builtAt}`}`,
    `  Web app      ${config.publicUrl}`,
    `  API docs     ${config.publicUrl}/docs`,
    `  Facilitator  ${config.publicUrl}/api/x402`,
    `  MCP          ${config.publicUrl}/mcp`,
    `  Network      ${chain}`,
    ...(config.local ? [`  Chain RPC    ${network.rpcUrls[0] ?? ""}`] : []),
    "",
    ...next,
    ...(config.local ? [`  Data is stored in ${config.dataDir} (npm run reset deletes it).`] : []),
    "",
    "  Ctrl-C stops everything.",
    "",
  ].join("\n");
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) void main();
