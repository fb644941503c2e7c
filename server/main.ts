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
import { ConfigError, loadConfig, type Config } from "./config.ts";
import { sendToPrimary, type ToChild } from "./infra/worker-messages.ts";
import { STARTUP_QUIET_MS } from "./infra/after-startup.ts";
import { hideConfigured, loggerOptions } from "./infra/telemetry.ts";
import { assertPortFree } from "./local/free-port.ts";
import { StartError } from "./local/start-error.ts";
import { withFacts, withLocalWorld, type LocalWorld, type WorldFacts } from "./local/world.ts";
import type { Primary } from "./primary.ts";

const SHUTDOWN_LIMIT_MS = 30_000;
/**
 * Time limits of a shutdown with several processes (accepting ones first, then the one with the lanes), and of the
 * local services after them.
 */
const SHUTDOWN_OF_ALL_MS = 38_000;
const SHUTDOWN_OF_WORLD_MS = 1_000;
const LEAVING_MS = 4_000;
const FAREWELL_MS = 50;
/** Under npm one Ctrl-C arrives twice: from the terminal, and passed on by npm a moment later. */
const SAME_SIGNAL_MS = 1_000;

interface Running {
  /** Removes secrets from reported failures. */
  hide?: (text: string) => string;
  app?: FastifyInstance;
  /** Set in the primary process, which only starts and stops other processes. */
  primary?: Primary;
  world?: LocalWorld | undefined;
  /** Load balancers are notified (by readiness) before this process stops. */
  isAnnounced?: boolean;
}

export async function main(): Promise<void> {
  const running: Running = {};
  const isOneOfMany = cluster.isWorker;
  const stopper = isOneOfMany ? stopOnSignal(running) : stopOnSignals(running);
  try {
    await (isOneOfMany ? startInRole(running, stopper) : start(running, stopper));
  } catch (error) {
    await shutDown(running);
    const { hide = (text: string) => text } = running;
    const reason = hide(describe(error));
    if (isOneOfMany) sendToPrimary({ type: "failed", reason });
    else console.error(`Purser could not start: ${reason}`);
    // The last message to the primary is still being sent.
    await delay(isOneOfMany ? FAREWELL_MS : 0);
    process.exit(1);
  }
}

async function start(running: Running, stopper: { requested: boolean }): Promise<void> {
  const loaded = loadConfig(process.env);
  if (loaded.workers > 1) return startMany(running, stopper, loaded);
  // Most of the code is loaded while the local services start. A failure to load is handled by the await below.
  const loading = import("./app.ts");
  loading.catch(() => undefined);
  running.hide = hideConfigured(loaded);
  await assertPortFree(loaded.host, loaded.port);
  const { config, world } = await withLocalWorld(loaded, (line) => console.log(line));
  running.world = world;
  running.isAnnounced = config.mode === "production";
  if (stopper.requested) return finish(running);
  await applyMigrations(config);
  const { buildApp } = await loading;
  running.app = await buildApp(config);
  if (stopper.requested) return finish(running);
  await running.app.listen({ host: config.host, port: config.port });
  console.log(banner(config));
  void noteChanges(running.app, config);
}

/** The primary process: only starts the others, and the local services once for all of them. */
async function startMany(
  running: Running,
  stopper: { requested: boolean },
  loaded: Config,
): Promise<void> {
  running.hide = hideConfigured(loaded);
  await assertPortFree(loaded.host, loaded.port);
  const { config, world } = await withLocalWorld(loaded, (line) => console.log(line));
  running.world = world;
  if (stopper.requested) return finish(running);
  const log = pino(loggerOptions({ ...config, worker: "primary" }) as LoggerOptions);
  const { Primary } = await import("./primary.ts");
  running.primary = new Primary({
    workers: config.workers,
    // Sent to them as JSON: facts only, without functions to stop the services.
    world,
    isAnnounced: config.mode === "production",
    stopsWithinMs: SHUTDOWN_OF_ALL_MS - SHUTDOWN_OF_WORLD_MS,
    log: (fields, text) => log.error(fields, text),
    onGivenUp: (reason) => {
      console.error(`Purser stops: ${reason}.`);
      void finish(running, 1);
    },
  });
  await running.primary.start();
  if (stopper.requested) return;
  console.log(banner(config));
}

/** One of several processes; the primary assigns its role. */
async function startInRole(running: Running, stopper: { requested: boolean }): Promise<void> {
  const assignment = receiveAssignment();
  sendToPrimary({ type: "here" });
  const loaded = loadConfig(process.env);
  running.hide = hideConfigured(loaded);
  // Before the first database query: loading the code blocks the event loop for too long to receive a response.
  const { buildApp } = await import("./app.ts");
  const { role, name, world } = await assignment;
  process.title = `purser ${role === "lanes" ? "lanes" : `worker ${name}`}`;
  const config = {
    ...(world ? withFacts(loaded, world as WorldFacts) : loaded),
    role,
    worker: name,
  };
  if (stopper.requested) return finish(running);
  if (role === "lanes") {
    await applyMigrations(config);
    sendToPrimary({ type: "migrated" });
  }
  running.app = await buildApp(config);
  if (stopper.requested) return finish(running);
  if (role === "lanes") void noteChanges(running.app, config);
  else await running.app.listen({ host: config.host, port: config.port });
  if (stopper.requested) return finish(running);
  sendToPrimary({ type: "ready" });
}

/**
 * Messages that arrive together are handled before any code that awaits one of them continues, so one listener handles
 * all of them.
 */
function receiveAssignment(): Promise<Extract<ToChild, { type: "begin" }>> {
  return new Promise((resolve) => {
    process.on("message", (message: ToChild) => {
      if (message.type === "begin") resolve(message);
    });
  });
}

/** Stop signals are handled by the primary: this process reports them, and the primary decides. */
function stopOnSignal(running: Running): { requested: boolean } {
  const stopper = { requested: false };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
    process.on(signal, () => sendToPrimary({ type: "leave" }));
  process.on("message", (message: ToChild) => {
    if (message.type === "ping") sendToPrimary({ type: "pong" });
    if (message.type !== "stop" || stopper.requested) return;
    stopper.requested = true;
    running.isAnnounced = message.isAnnounced;
    if (!running.app) process.exit(0);
    void finish(running);
  });
  return stopper;
}

/** In the background after the start: computing an entry takes slow hashes. */
async function noteChanges({ prisma, log }: FastifyInstance, config: Config): Promise<void> {
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
function stopOnSignals(running: Running): { requested: boolean } {
  const stopper = { requested: false };
  let firstAtMs = 0;
  const stop = (): void => {
    if (stopper.requested) {
      if (performance.now() - firstAtMs > SAME_SIGNAL_MS) process.exit(130);
      return;
    }
    stopper.requested = true;
    firstAtMs = performance.now();
    console.log("Stopping... (Ctrl-C again to stop immediately)");
    // During the start, `start` checks the flag and finishes; after that, it is done here.
    if (running.primary || running.app?.server.listening) void finish(running);
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, stop);
  return stopper;
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
  const [ofOthers] = results;
  return failures.length === 0 && !(ofOthers?.status === "fulfilled" && ofOthers.value === false);
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
