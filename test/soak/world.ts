// The services of the soak: its own Postgres, a chain behind two RPC endpoints, and replicas, each in its own
// process with its own path to the database.
import { fork, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Client, Pool } from "pg";
import type { Test } from "tap";
import { privateKeyToAddress } from "viem/accounts";
import { migrate } from "../../server/infra/db/migrate.ts";
import { freePort } from "../../server/local/free-port.ts";
import { startPostgres, type PostgresServer } from "../../server/local/postgres.ts";
import { AMPLE_GAS, testEnvironment } from "../helpers/app.ts";
import { testAccount, testChain, type TestChain } from "../helpers/chain.ts";
import { childScript } from "../helpers/child-script.ts";
import { rpcProxy, type RpcProxy } from "../helpers/rpc-proxy.ts";
import { tcpGate, type TcpGate } from "../helpers/tcp-gate.ts";

export const BLOCK_SECONDS = 1;
/** Reorganisations in the soak are less deep than this. */
export const CONFIRMATIONS = 3;
/** In addition to the chain's ten accounts. */
const RELAYERS = 2;
const CLOCK = fileURLToPath(new URL("../spending/skewed-clock.mjs", import.meta.url));

interface WorldOptions {
  replicas: number;
  /** The folder for the replicas' logs, which are kept. */
  logDir: string;
  /** Private origins that every replica may fetch from. */
  privateOrigins: (t: Pick<Test, "teardown">, chain: TestChain) => Promise<string[]>;
  demoPayTo: string;
}

interface Replica {
  readonly index: number;
  readonly url: string;
  readonly gate: TcpGate;
  readonly isUp: boolean;
  start(env?: Record<string, string>): Promise<void>;
  signal(signal: NodeJS.Signals): void;
  /** Resolves when the process has ended. */
  kill(): Promise<void>;
}

export interface World {
  chain: TestChain;
  /**
   * Two endpoints of the same chain. Each replica has them in a different order, and the first one has only
   * one.
   */
  endpoints: [RpcProxy, RpcProxy];
  replicas: Replica[];
  postgres: SoakPostgres;
  publicUrl: string;
  relayers: `0x${string}`[];
  /** Replicas that ended although the soak did not kill them. */
  ownEnds: string[];
  stop(): Promise<void>;
}

/**
 * The soak's own record of when each payment began and ceased to count against its agent's limit.
 * `updated_at` is not usable, because other writes change it too, such as the outcome of a delivery.
 */
const WITNESS = `
  CREATE SCHEMA soak;
  CREATE TABLE soak.weighed (agent_id TEXT, payment_id TEXT, counted BOOLEAN, at TIMESTAMPTZ);
  CREATE INDEX ON soak.weighed (payment_id);
  CREATE FUNCTION soak.note() RETURNS TRIGGER LANGUAGE plpgsql AS $$
  BEGIN
    IF TG_OP = 'INSERT' THEN
      IF NEW.counted THEN
        INSERT INTO soak.weighed VALUES (NEW.agent_id, NEW.id, TRUE,
          CASE WHEN NEW.status = 'reserved' THEN NEW.created_at ELSE clock_timestamp() END);
      END IF;
    ELSIF NEW.counted <> OLD.counted THEN
      INSERT INTO soak.weighed VALUES (NEW.agent_id, NEW.id, NEW.counted, clock_timestamp());
    END IF;
    RETURN NULL;
  END $$;
  CREATE TRIGGER soak_noted AFTER INSERT OR UPDATE ON payments FOR EACH ROW EXECUTE FUNCTION soak.note();`;

type Closer = (() => unknown) | (() => Promise<unknown>);

export async function startWorld(options: WorldOptions): Promise<World> {
  const closers: Closer[] = [];
  const t = { teardown: (close: Closer) => void closers.push(close) } as never;
  const stop = async (): Promise<void> => {
    for (const close of closers.splice(0).toReversed()) await close();
  };
  try {
    const postgres = await SoakPostgres.start(t);
    const chain = await testChain(t, { blockTimeSeconds: BLOCK_SECONDS });
    const outside = await options.privateOrigins(t, chain);
    const ports = await Promise.all([freePort(), freePort()]);
    const endpoints = (await Promise.all(
      ports.map((port) => rpcProxy(t, chain.rpcUrl, { port, keepsCalls: false })),
    )) as World["endpoints"];
    const keys = Array.from({ length: RELAYERS }, (_, index) => testAccount(700 + index));
    for (const { address } of keys)
      await chain.testClient.setBalance({ address, value: 10n ** 22n });
    mkdirSync(options.logDir, { recursive: true });
    const replicaPorts: number[] = [];
    for (let index = 0; index < options.replicas; index += 1) replicaPorts.push(await freePort());
    const publicUrl = `http://localhost:${replicaPorts[0]}`;
    const origins = replicaPorts.map((port) => `http://127.0.0.1:${port}`);
    const ownEnds: string[] = [];
    const replicas: Replica[] = [];
    for (const [index, port] of replicaPorts.entries()) {
      const gate = await tcpGate(t, { host: "127.0.0.1", port: postgres.port });
      const [one, other] = endpoints.map(({ url }) => url) as [string, string];
      const rpc = [one, `${one},${other}`, `${other},${one}`][index % 3] ?? one;
      const env = {
        ...testEnvironment({ databaseUrl: postgres.urlThrough(gate.port), chain, port }),
        PUBLIC_URL: publicUrl,
        [`GAS_BUDGET_${chain.chainId}`]: AMPLE_GAS,
        [`RPC_URL_${chain.chainId}`]: rpc,
        [`CONFIRMATIONS_${chain.chainId}`]: String(CONFIRMATIONS),
        RELAYER_PRIVATE_KEYS: keys.map(({ privateKey }) => privateKey).join(","),
        FETCH_PRIVATE_ORIGINS: [...outside, ...origins].join(","),
        DEMO_PAY_TO: options.demoPayTo,
        SOAK_LOG: join(options.logDir, `replica-${index}.log`),
        NODE_ENV: "production",
      };
      replicas.push(soakReplica(t, { index, port, gate, env, ownEnds }));
    }
    await Promise.all(replicas.map((replica) => replica.start()));
    const relayers = keys.map(({ privateKey }) => privateKeyToAddress(privateKey));
    return { chain, endpoints, replicas, postgres, publicUrl, relayers, ownEnds, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function soakReplica(
  t: { teardown: (close: Closer) => void },
  made: {
    index: number;
    port: number;
    gate: TcpGate;
    env: Record<string, string>;
    ownEnds: string[];
  },
): Replica {
  const state: { child?: ChildProcess; isUp: boolean; isWanted: boolean } = {
    isUp: false,
    isWanted: false,
  };
  // Messages at the end of a process are only on stderr.
  const stderr = openSync(`${made.env["SOAK_LOG"]}.stderr`, "a");
  t.teardown(() => closeSync(stderr));

  /** Retries a start that fails because the database is unavailable, as a supervisor would. */
  async function start(env: Record<string, string> = {}): Promise<void> {
    state.isWanted = true;
    while (state.isWanted && !state.isUp) {
      const child = fork(childScript("test/soak/replica.child.ts"), {
        execArgv: ["--enable-source-maps", `--import=${CLOCK}`],
        env: { PATH: process.env["PATH"] ?? "", ...made.env, ...env },
        stdio: ["ignore", "ignore", stderr, "ipc"],
      });
      state.child = child;
      const ended = once(child, "exit");
      const [message] = (await Promise.race([once(child, "message"), ended])) as unknown[];
      state.isUp = message === "ready";
      if (!state.isUp) await sleep(500);
      else
        child.once("exit", (code, signal) => {
          if (state.child !== child) return;
          state.isUp = false;
          if (!state.isWanted) return;
          made.ownEnds.push(`replica ${made.index} ended by itself: ${code ?? signal}`);
          void start(env);
        });
    }
  }

  async function end(how: NodeJS.Signals): Promise<void> {
    state.isWanted = false;
    const ending = state.child;
    delete state.child;
    state.isUp = false;
    if (!ending || ending.exitCode !== null || ending.signalCode !== null) return;
    const ended = once(ending, "exit");
    ending.kill("SIGCONT");
    ending.kill(how);
    const limit = setTimeout(() => ending.kill("SIGKILL"), 15_000);
    await ended;
    clearTimeout(limit);
  }

  t.teardown(() => end("SIGTERM"));
  return {
    index: made.index,
    url: `http://127.0.0.1:${made.port}`,
    gate: made.gate,
    get isUp() {
      return state.isUp;
    },
    start,
    signal: (signal) => void state.child?.kill(signal),
    kill: () => end("SIGKILL"),
  };
}

/** A durable server of its own: it is killed, and the other tests' server is not durable. */
class SoakPostgres {
  readonly #dir: string;
  readonly #password: string;
  #server: PostgresServer;
  readonly port: number;
  /** Connects to Postgres directly, past the fault proxies. */
  readonly pool: Pool;

  private constructor(dir: string, password: string, server: PostgresServer) {
    this.#dir = dir;
    this.#password = password;
    this.#server = server;
    this.port = server.port;
    this.pool = new Pool({ connectionString: this.urlThrough(server.port), max: 4 });
    this.pool.on("error", () => undefined);
    this.pool.on("connect", (client) => client.on("error", () => undefined));
  }

  static async start(t: { teardown: (close: Closer) => void }): Promise<SoakPostgres> {
    const dir = mkdtempSync(join(process.env["PURSER_TEST_DIR"] ?? tmpdir(), "purser-soak-"));
    const password = randomBytes(12).toString("hex");
    const server = await startPostgres({ dir, password, durable: true, maxConnections: 300 });
    const made = new SoakPostgres(dir, password, server);
    t.teardown(async () => {
      await made.pool.end();
      await made.#server.stop();
      rmSync(dir, { recursive: true, force: true });
    });
    const admin = new Client({ connectionString: server.adminUrl });
    await admin.connect();
    await admin.query("CREATE DATABASE soak");
    await admin.end();
    await migrate({ connectionString: made.urlThrough(server.port) });
    await made.pool.query(WITNESS);
    return made;
  }

  urlThrough(port: number): string {
    return `postgresql://purser:${this.#password}@127.0.0.1:${port}/soak`;
  }

  /** Kills the server and all its backends at once, as a power failure does. */
  async kill(): Promise<void> {
    this.signal("SIGKILL");
    await this.#server.ended;
  }

  async restart(): Promise<void> {
    const settings = { dir: this.#dir, password: this.#password, durable: true };
    this.#server = await startPostgres({ ...settings, maxConnections: 300, port: this.port });
  }

  signal(signal: NodeJS.Signals): void {
    for (const pid of [this.#server.pid, ...childrenOf(this.#server.pid)]) {
      try {
        process.kill(pid, signal);
      } catch {
        // It has ended meanwhile.
      }
    }
  }
}

/** Postgres starts a child process for each connection, and these start none. */
export function childrenOf(parent: number): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        // pid (name) state ppid
        const [, ppid] = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
        return Number(ppid) === parent;
      } catch {
        return false;
      }
    });
}
