// Postgres as an operator runs it: durable servers, standbys, point-in-time restores, and replicas of the
// service on them.
import { fork } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, Pool } from "pg";
import type { Test } from "tap";
import { migrate } from "../../server/infra/db/migrate.ts";
import { freePort } from "../../server/local/free-port.ts";
import { startPostgres, type PostgresServer } from "../../server/local/postgres.ts";
import { AMPLE_GAS, testEnvironment } from "../helpers/app.ts";
import type { TestChain } from "../helpers/chain.ts";
import { childScript } from "../helpers/child-script.ts";
import { childrenOf } from "../soak/world.ts";

const DATABASE = "purser";
const USER = "purser";

type Closes = Pick<Test, "teardown">;

/** One Postgres server and its data folder. */
export class Server {
  readonly dir: string;
  readonly password: string;
  readonly port: number;
  /** The test's own connections. */
  readonly pool: Pool;
  #server: PostgresServer | undefined;
  #settings: string[] = [];

  private constructor(dir: string, password: string, port: number) {
    this.dir = dir;
    this.password = password;
    this.port = port;
    this.pool = new Pool({
      connectionString: this.url,
      max: 3,
      connectionTimeoutMillis: 3_000,
      application_name: "the test",
    });
    this.pool.on("error", () => undefined);
    this.pool.on("connect", (client) => client.on("error", () => undefined));
  }

  get url(): string {
    return `postgres://${USER}:${this.password}@127.0.0.1:${this.port}/${DATABASE}`;
  }

  static async at(t: Closes, dir: string, password: string): Promise<Server> {
    const server = new Server(dir, password, await freePort());
    t.teardown(async () => {
      await server.pool.end();
      server.signal("SIGCONT");
      await server.#server?.stop();
      rmSync(dir, { recursive: true, force: true });
    });
    return server;
  }

  /** A new cluster with the service's tables. */
  static async make(t: Closes, settings: string[] = []): Promise<Server> {
    const server = await Server.at(t, newFolder(), randomBytes(12).toString("hex"));
    await server.start(settings);
    const admin = new Client({ connectionString: server.#server?.adminUrl });
    await admin.connect();
    await admin.query(`CREATE DATABASE ${DATABASE}`);
    await admin.end();
    await migrate({ connectionString: server.url });
    return server;
  }

  async start(settings: string[] = []): Promise<void> {
    this.#settings = settings;
    const { dir, password, port } = this;
    const durable = { dir, password, durable: true, maxConnections: 200, port };
    this.#server = await startPostgres({ ...durable, settings });
  }

  /** Starts again with the same settings. */
  async restart(): Promise<void> {
    await this.start(this.#settings);
  }

  async stop(): Promise<void> {
    await this.#server?.stop();
  }

  signal(signal: NodeJS.Signals): void {
    if (!this.#server) return;
    for (const pid of [this.#server.pid, ...childrenOf(this.#server.pid)]) {
      try {
        process.kill(pid, signal);
      } catch {
        // It has ended meanwhile.
      }
    }
  }

  /** Kills the server and all its processes at once, as a power failure does. */
  async kill(): Promise<void> {
    this.signal("SIGKILL");
    await this.#server?.ended;
  }

  /**
   * The Postgres binaries from npm lack `pg_basebackup`, so this copies the running server's folder between
   * start and stop of a backup.
   */
  async copyTo(dir: string): Promise<void> {
    const client = await this.pool.connect();
    try {
      await client.query("SELECT pg_backup_start('copy', true)");
      mkdirSync(dir, { recursive: true });
      const leftOut = /\/(postmaster\.(pid|opts)|pg_wal\/[^/]+|pg_replslot\/[^/]+)$/;
      const filter = (path: string) => !leftOut.test(path);
      const copy = () =>
        cpSync(join(this.dir, "postgres"), join(dir, "postgres"), { recursive: true, filter });
      retried(copy);
      mkdirSync(join(dir, "postgres", "pg_wal", "archive_status"), { recursive: true });
      const { rows } = await client.query<{ labelfile: string }>(
        "SELECT labelfile FROM pg_backup_stop(false)",
      );
      writeFileSync(join(dir, "postgres", "backup_label"), rows[0]?.labelfile ?? "");
    } finally {
      client.release(true);
    }
  }

  /** A standby that follows this server. */
  async follower(t: Closes, name: string): Promise<Server> {
    const dir = newFolder();
    await this.copyTo(dir);
    writeFileSync(join(dir, "postgres", "standby.signal"), "");
    const standby = await Server.at(t, dir, this.password);
    await standby.start([
      "wal_retrieve_retry_interval=200ms",
      `primary_conninfo=host=127.0.0.1 port=${this.port} user=${USER} password=${this.password} application_name=${name}`,
    ]);
    return standby;
  }

  async promote(): Promise<void> {
    await this.pool.query("SELECT pg_promote(true, 20)");
  }

  log(): string {
    return readFileSync(join(this.dir, "postgres.log"), "utf8");
  }
}

/**
 * Files of a running server appear and disappear during the copy, which is allowed between start and stop of
 * a backup.
 */
function retried(copy: () => void): void {
  for (let tries = 1; ; tries += 1) {
    try {
      return copy();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT" || tries === 5) throw error;
    }
  }
}

export const newFolder = (): string =>
  mkdtempSync(join(process.env["PURSER_TEST_DIR"] ?? tmpdir(), "purser-cluster-"));

/** A connection string with several hosts, in order, as libpq accepts it. */
export const urlOf = (...servers: [Server, ...Server[]]): string =>
  `postgres://${USER}:${servers[0].password}@${servers
    .map(({ port }) => `127.0.0.1:${port}`)
    .join(",")}/${DATABASE}?target_session_attrs=read-write`;

interface Replica {
  index: number;
  url: string;
  logFile: string;
  log: () => string;
}

/** As in production, each in its own process. */
export async function startReplicas(
  t: Closes,
  chain: TestChain,
  { databaseUrl, count, env = {} }: { databaseUrl: string; count: number; env?: object },
): Promise<Replica[]> {
  const logs = newFolder();
  t.teardown(() => rmSync(logs, { recursive: true, force: true }));
  const ports: number[] = [];
  while (ports.length < count) ports.push(await freePort());
  return Promise.all(
    ports.map(async (port, index) => {
      const logFile = join(logs, `${index}.log`);
      writeFileSync(logFile, "");
      const child = fork(childScript("test/soak/replica.child.ts"), {
        execArgv: ["--enable-source-maps"],
        env: {
          PATH: process.env["PATH"] ?? "",
          ...testEnvironment({ databaseUrl, chain, port }),
          PUBLIC_URL: `http://localhost:${ports[0]}`,
          [`GAS_BUDGET_${chain.chainId}`]: AMPLE_GAS,
          SOAK_LOG: logFile,
          ...env,
        },
        stdio: ["ignore", "ignore", "inherit", "ipc"],
      });
      const ended = once(child, "exit");
      t.teardown(async () => {
        if (child.exitCode === null && child.signalCode === null) child.kill("SIGTERM");
        await ended;
      });
      const [message] = (await Promise.race([once(child, "message"), ended])) as unknown[];
      if (message !== "ready") throw new Error(`a replica ended: ${readFileSync(logFile, "utf8")}`);
      const url = `http://127.0.0.1:${port}`;
      return { index, url, logFile, log: () => readFileSync(logFile, "utf8") };
    }),
  );
}
