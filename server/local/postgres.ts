// A real Postgres on loopback, with its files in one folder. Used by local mode (durable) and by the test runner (fast,
// thrown away).
import { spawnSync } from "node:child_process";
import {
  chownSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "pg";
import { freePort } from "./free-port.ts";
import {
  findPostgresBinaries,
  type PostgresBinaries,
  chooseRunAs,
  type RunAs,
} from "./postgres-binaries.ts";
import { endOrphan } from "./processes.mjs";
import { StartError } from "./start-error.ts";
import { startWarded, type WardedChild } from "./warded-child.ts";

interface PostgresOptions {
  /** Contains `postgres/`, its log and its pid file. */
  dir: string;
  password: string;
  /** False gives up durability for speed; only for temporary data. */
  durable: boolean;
  maxConnections: number;
  port?: number;
  /** More settings as `name=value`; they come last and override the others. */
  settings?: string[];
  removeOnExit?: string;
}

export interface PostgresServer extends WardedChild {
  readonly port: number;
  readonly adminUrl: string;
}

const SUPERUSER = "purser";
const READY_WITHIN_MS = 60_000;
const FAST_FLAGS = ["fsync=off", "synchronous_commit=off", "full_page_writes=off"];
/** Of the password's hash, which is computed at every login; the password itself is random. */
const FAST_LOGIN = ["-c", "scram_iterations=1"];

export async function startPostgres(options: PostgresOptions): Promise<PostgresServer> {
  const binaries = findPostgresBinaries();
  const runAs = chooseRunAs(binaries.initdb);
  const dataDir = join(options.dir, "postgres");
  const pidFile = join(options.dir, "postgres.pid");
  const logFile = join(options.dir, "postgres.log");

  await endOrphan(pidFile, "SIGINT");
  if (existsSync(join(dataDir, "PG_VERSION"))) refuseOtherMajor(dataDir, binaries.major);
  else initialise(options, binaries, runAs, dataDir);
  giveTo(runAs, dataDir);
  dropStalePostmasterPid(dataDir);

  const port = options.port ?? (await freePort());
  const started = await startWarded({
    ...runAs.wrap(binaries.postgres, serverArguments(options, dataDir, port)),
    ...(runAs.ids && { ids: runAs.ids }),
    ...(options.removeOnExit && { removeOnExit: options.removeOnExit }),
    stopSignal: "SIGINT", // Postgres: fast shutdown.
    pidFile,
    logFile,
  });
  const adminUrl = `postgresql://${SUPERUSER}:${options.password}@127.0.0.1:${port}/postgres`;
  try {
    await waitUntilReady(adminUrl, started, logFile);
  } catch (error) {
    await started.stop();
    throw error;
  }
  return { ...started, port, adminUrl };
}

function serverArguments(options: PostgresOptions, dataDir: string, port: number): string[] {
  const settings = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    `port=${port}`,
    `max_connections=${options.maxConnections}`,
    "log_min_messages=warning",
    "log_checkpoints=off",
    "timezone=UTC",
    "log_timezone=UTC",
    "password_encryption=scram-sha-256",
    ...(options.durable ? [] : FAST_FLAGS),
    ...(options.settings ?? []),
  ];
  return ["-D", dataDir, ...settings.flatMap((setting) => ["-c", setting])];
}

/** Built in a temporary folder and renamed, so that an interrupted start never leaves half a database. */
function initialise(
  options: PostgresOptions,
  binaries: PostgresBinaries,
  runAs: RunAs,
  dataDir: string,
): void {
  const building = `${dataDir}.new`;
  const passwordFile = join(options.dir, "postgres.password");
  if (existsSync(join(dataDir, "global", "pg_control"))) {
    throw new StartError(
      `${dataDir} is damaged: PG_VERSION is missing. Restore it, or: npm run reset`,
    );
  }
  rmSync(building, { recursive: true, force: true });
  rmSync(dataDir, { recursive: true, force: true });
  mkdirSync(building, { mode: 0o700 });
  writeFileSync(passwordFile, options.password, { mode: 0o600 });
  try {
    if (runAs.owner) {
      chownSync(building, runAs.owner.uid, runAs.owner.gid);
      chownSync(passwordFile, runAs.owner.uid, runAs.owner.gid);
    }
    const { command, args } = runAs.wrap(binaries.initdb, [
      `--pgdata=${building}`,
      `--username=${SUPERUSER}`,
      `--pwfile=${passwordFile}`,
      "--auth=scram-sha-256",
      "--encoding=UTF8",
      "--locale=C",
      "--locale-provider=builtin",
      "--builtin-locale=C.UTF-8",
      ...(options.durable ? [] : ["--no-sync", ...FAST_LOGIN]),
    ]);
    const result = spawnSync(command, args, { encoding: "utf8", cwd: "/", ...runAs.ids });
    if (result.status !== 0) {
      const said = `${result.stderr ?? ""}${result.error?.message ?? ""}`.trim().split("\n");
      const reason = said.find((line) => /error|fatal/i.test(line)) ?? said.at(-1) ?? "no reason";
      throw new StartError(`the embedded Postgres could not be set up: ${withoutPrefix(reason)}`);
    }
    renameSync(building, dataDir);
  } finally {
    rmSync(passwordFile, { force: true });
    rmSync(building, { recursive: true, force: true });
  }
}

function refuseOtherMajor(dataDir: string, major: string): void {
  const found = readFileSync(join(dataDir, "PG_VERSION"), "utf8").trim();
  if (found === major) return;
  throw new StartError(
    `${dataDir} was made by Postgres ${found}, this is Postgres ${major}. ` +
      "Start fresh with: npm run reset (deletes the local data).",
  );
}

/** After a change of the user that runs Postgres, the files must belong to the new one. */
function giveTo(runAs: RunAs, dataDir: string): void {
  const { owner } = runAs;
  if (owner === undefined || lstatSync(dataDir).uid === owner.uid) return;
  lchownSync(dataDir, owner.uid, owner.gid);
  for (const entry of readdirSync(dataDir, { recursive: true, encoding: "utf8" }))
    lchownSync(join(dataDir, entry), owner.uid, owner.gid);
}

/**
 * We hold the lock on the data folder and ended our own orphans, so a postmaster.pid is a leftover. Postgres would
 * refuse to start if its process id meanwhile belongs to another process.
 */
function dropStalePostmasterPid(dataDir: string): void {
  const path = join(dataDir, "postmaster.pid");
  if (!existsSync(path)) return;
  const pid = Number(readFileSync(path, "utf8").split("\n")[0]);
  if (!isPostgresOn(pid, dataDir)) rmSync(path, { force: true });
}

function isPostgresOn(pid: number, dataDir: string): boolean {
  try {
    process.kill(pid, 0);
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(dataDir);
  } catch (error) {
    // Without /proc we cannot check, so Postgres decides.
    return process.platform !== "linux" && (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

async function waitUntilReady(url: string, server: WardedChild, logFile: string): Promise<void> {
  const deadline = Date.now() + READY_WITHIN_MS;
  let ended = false;
  void server.ended.then(() => (ended = true));
  for (;;) {
    const client = new Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
    client.on("error", () => undefined);
    try {
      await client.connect();
      await client.query("SELECT 1");
      return;
    } catch (error) {
      if (ended || Date.now() > deadline) {
        const reason = lastComplaint(logFile) ?? (error as Error).message;
        throw new StartError(`the embedded Postgres did not start: ${reason} (log: ${logFile})`, {
          cause: error,
        });
      }
    } finally {
      await client.end().catch(() => undefined);
    }
    await delay(25);
  }
}

function lastComplaint(logFile: string): string | undefined {
  const lines = readFileSync(logFile, "utf8").trimEnd().split("\n").slice(-20);
  const line = lines.findLast((text) => /FATAL|PANIC|ERROR|could not/.test(text)) ?? lines.at(-1);
  return line === undefined ? undefined : withoutPrefix(line);
}

/** Without time, process and severity. */
function withoutPrefix(line: string): string {
  return line.replace(/^.*?(FATAL|PANIC|ERROR|initdb: error): */, "");
}
