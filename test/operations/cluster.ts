// Postgres as an operator runs it: durable servers, standbys, point-in-time restores, and replicas of the
// service on them.
import { execFileSync, fork } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client, Pool } from "pg";
import type { Test } from "tap";
import { parse } from "yaml";
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

  async restartWith(settings: string[]): Promise<void> {
    await this.stop();
    await this.start([...this.#settings, ...settings]);
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

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const COMPOSE = "ops/compose.replicas.yaml";
/** What Postgres takes where nothing is set; `Server` sets more. */
const STOCK = ["max_connections=100"];

/**
 * The primary and the standby of the compose file with replicas: its settings and scripts, and the database URL of its
 * instructions. Only the programs of the Postgres image are replaced by those at hand.
 */
export async function composeServers(t: Closes) {
  const text = readFileSync(`${ROOT}${COMPOSE}`, "utf8");
  const { services } = parse(text, { merge: true }) as {
    services: Record<string, { command: string[]; environment: Record<string, string> }>;
  };
  const serviceOf = (name: string) => {
    const service = services[name];
    if (!service) throw new Error(`${COMPOSE} has no ${name}`);
    return service;
  };
  const programs = newFolder();
  t.teardown(() => rmSync(programs, { recursive: true, force: true }));
  const replicationPassword = randomBytes(12).toString("hex");
  writeFileSync(join(programs, "replication_password"), `${replicationPassword}\n`);
  const program = (name: string, lines: string): void => {
    writeFileSync(join(programs, name), lines);
    chmodSync(join(programs, name), 0o755);
  };
  const run = (script: string, server: { dir: string }, env: object, ...args: string[]): string => {
    const lines = readFileSync(`${ROOT}ops/replicas/${script}`, "utf8");
    return execFileSync(
      "bash",
      ["-c", lines.replaceAll("/run/secrets", programs), script, ...args],
      {
        encoding: "utf8",
        // With a socket there, bash would read the user's .bashrc.
        stdio: ["ignore", "pipe", "inherit"],
        env: {
          PATH: `${programs}:${process.env["PATH"] ?? ""}`,
          PGDATA: join(server.dir, "postgres"),
          ...env,
        },
      },
    );
  };

  const commandOfPrimary = serviceOf("postgres-primary").command;
  const primary = await Server.make(t, [...STOCK, ...settingsOf(commandOfPrimary)]);
  program(
    "psql",
    `#!${process.execPath}
    const { Client } = require(${JSON.stringify(join(ROOT, "node_modules/pg"))});
    const text = require("node:fs").readFileSync(0, "utf8").replaceAll(/^--.*$/gm, "");
    const [, password] = /^password=(.*)$/m.exec(process.argv.join("\\n"));
    const client = new Client(process.env.URL);
    client.connect().then(async () => {
      for (const sql of text.split(";").filter((sql) => sql.trim() !== ""))
        await client.query(sql.replace(":'password'", "'" + password + "'"));
      await client.end();
    });`,
  );
  const { POSTGRES_USER = "", POSTGRES_DB = "" } = serviceOf("postgres-primary").environment;
  run("primary.sh", primary, { URL: primary.url, POSTGRES_USER, POSTGRES_DB });
  await primary.restart();

  /** As the container of the standby does it at its first start. */
  async function follow(leader: Server): Promise<Server> {
    const copy = newFolder();
    t.teardown(() => rmSync(copy, { recursive: true, force: true }));
    await leader.pool.query("SELECT pg_create_physical_replication_slot('standby')");
    await leader.copyTo(copy);
    program("pg_isready", "#!/bin/bash\n");
    // What `--write-recovery-conf` adds, to a copy that was made before.
    program(
      "pg_basebackup",
      `#!/bin/bash
      set -e
      for arg in "$@"; do
        case $arg in
          --pgdata=*) to=\${arg#*=} ;;
          --dbname=*) conninfo=\${arg#*=} ;;
          --slot=*) slot=\${arg#*=} ;;
        esac
      done
      cp -a ${join(copy, "postgres")} "$to"
      touch "$to/standby.signal"
      echo "primary_conninfo = '$conninfo port=${leader.port} password=$PGPASSWORD'" >>"$to/postgresql.auto.conf"
      echo "primary_slot_name = '$slot'" >>"$to/postgresql.auto.conf"`,
    );
    program("postgres", '#!/bin/bash\nprintf "%s\\n" "$@"\n');
    const server = await Server.at(t, newFolder(), leader.password);
    const env = { PRIMARY_HOST: "127.0.0.1" };
    const started = run("standby.sh", server, env, ...serviceOf("postgres-standby").command);
    await server.start([...STOCK, ...settingsOf(["postgres", ...started.trim().split("\n")])]);
    return server;
  }
  const standby = await follow(primary);

  const [, hosts = ""] =
    /postgres:\/\/purser:\$\(cat postgres_password\)@(\S+)\/purser/.exec(text) ?? [];
  const ports: Record<string, number> = {
    "postgres-primary": primary.port,
    "postgres-standby": standby.port,
  };
  const places = hosts.split(",").map((host) => `127.0.0.1:${ports[host]}`);
  const databaseUrl = `postgres://${USER}:${primary.password}@${places.join(",")}/${DATABASE}`;
  return { primary, standby, databaseUrl, follow };
}

/** Of `postgres -c name=value ...`. */
function settingsOf([program, ...args]: string[]): string[] {
  const settings = args.filter((_arg, index) => index % 2 === 1);
  const isOurs = program === "postgres" && settings.every((_, index) => args[2 * index] === "-c");
  if (!isOurs || 2 * settings.length !== args.length)
    throw new Error(`not only settings: ${program} ${args.join(" ")}`);
  return settings;
}

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
