// Starts a chain, our server and the servers to compare for one row, and stops them after it.
import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts";
import { freePort } from "../../server/local/free-port.ts";
import { createPool, surviveLostConnections } from "../../server/infra/db/pool.ts";
import { migrate } from "../../server/infra/db/migrate.ts";
import { AMPLE_GAS, testEnvironment } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { testDatabase } from "../helpers/postgres.ts";
import type { Launch, Name, Server, World, WorldOptions } from "./context.ts";
import { cpuMsOf, familyOf, memoryMiBOf } from "./cpu.ts";

const READY_WITHIN_MS = 120_000;
const LOOK_EVERY_MS = 20;
const NATIVE_WEI = 10n ** 24n;
const file = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** As `npm start` does. */
export const START = [process.execPath, "--max-semi-space-size=4", file("../../server/start.mjs")];

const SHELL = "sh";
/** Another facilitator to compare with: a shell command that gets its settings in its environment. */
const PEER_COMMAND = process.env["PEER_COMMAND"];

type Closers = (() => unknown)[];

export async function startWorld(options: WorldOptions = {}): Promise<World> {
  const closers: Closers = [];
  const stop = async (): Promise<void> => {
    for (const close of closers.splice(0).reverse()) await close();
  };
  try {
    const teardown = { teardown: (close: () => unknown) => void closers.push(close) } as never;
    const chain = await testChain(teardown, {
      blockTimeSeconds: options.blockTimeSeconds ?? 0.5,
      ...(options.blockGasLimit && { flags: [`--gas-limit=${options.blockGasLimit}`] }),
    });
    const database = await testDatabase(teardown);
    await migrate({ connectionString: database.url });
    const pool = createPool(database.url, { maxConnections: 1 });
    surviveLostConnections(pool, ({ message }) =>
      console.error(`the bench's own connection: ${message}`),
    );
    closers.push(() => pool.end());
    const funded = async (count = 1): Promise<`0x${string}`[]> => {
      const keys = Array.from({ length: count }, () => generatePrivateKey());
      for (const key of keys)
        await chain.testClient.setBalance({
          address: privateKeyToAddress(key),
          value: NATIVE_WEI,
        });
      return keys;
    };
    const endpoint = (): Promise<Endpoint> =>
      options.rpcDelayMs === undefined
        ? Promise.resolve({ url: chain.rpcUrl })
        : startProxy(chain.rpcUrl, options.rpcDelayMs, closers);

    const ourKeys = await funded(options.relayers);
    const ourEndpoint = await endpoint();
    const environment = {
      ...testEnvironment({
        databaseUrl: database.url,
        chain: { ...chain, rpcUrl: ourEndpoint.url },
        port: 0,
      }),
      RELAYER_PRIVATE_KEYS: ourKeys.join(","),
      [`GAS_BUDGET_${chain.chainId}`]: AMPLE_GAS,
      MASTER_KEYS: `bench:${randomBytes(32).toString("base64")}`,
      NODE_ENV: "production",
      // As `npm start` and the image set it.
      MALLOC_TRIM_THRESHOLD_: "131072",
      WORKERS: "1",
      ...options.env,
    };
    const launches: World["launches"] = {
      ours: {
        command: START,
        env: (port) => ({
          ...environment,
          PORT: String(port),
          PUBLIC_URL: `http://localhost:${port}`,
        }),
        readyPath: "/api/x402/supported",
      },
    };
    /** The bench has already done the checks of `npm start`, so they are skipped. */
    const built: Launch = {
      ...launches.ours,
      command: [...START, "--built"],
      ...(options.port !== undefined && { port: options.port }),
    };
    const pids: number[] = [];
    const replicas: string[] = [];
    for (let replica = 0; replica < (options.replicas ?? 1); replica += 1) {
      const { url, pid } = await launch(built, closers);
      replicas.push(url);
      pids.push(pid);
    }
    const ours = replicas[0] ?? "";
    const servers: World["servers"] = {
      ours: serverOf(`${ours}/api/x402`, ourKeys, pids, ourEndpoint),
    };
    if (options.oursAlone !== true) {
      const startOther = async (name: Name, command: string[], prefix: string): Promise<void> => {
        const [key = "0x"] = await funded();
        const itsEndpoint = await endpoint();
        const its: Launch = {
          command,
          env: (port) => ({
            [`${prefix}_RPC_URL`]: itsEndpoint.url,
            [`${prefix}_CHAIN_ID`]: String(chain.chainId),
            [`${prefix}_PRIVATE_KEY`]: key,
            [`${prefix}_PORT`]: String(port),
            NODE_ENV: "production",
          }),
          readyPath: "/supported",
        };
        const { url, pid } = await launch(its, closers);
        launches[name] = its;
        servers[name] = serverOf(url, [key], [pid], itsEndpoint);
      };
      const reference = [process.execPath, "--import=tsx", file("reference-facilitator.ts")];
      await startOther("reference", reference, "REFERENCE");
      if (PEER_COMMAND !== undefined) await startOther("peer", [SHELL, "-c", PEER_COMMAND], "PEER");
    }
    return {
      chain,
      databaseUrl: database.url,
      database: pool,
      launches,
      ours,
      replicas,
      pids,
      servers,
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

interface Endpoint {
  url: string;
  /** A proxy reports its count. */
  isProxy?: true;
}

function serverOf(
  url: string,
  keys: readonly `0x${string}`[],
  pids: readonly number[],
  endpoint: Endpoint,
): Server {
  const family = (): number[] => pids.flatMap((pid) => familyOf(pid));
  return {
    url,
    relayers: keys.map((key) => privateKeyToAddress(key)),
    cpuMs: () => cpuMsOf(family()),
    memoryMiB: () => memoryMiBOf(family()),
    rpcCalls: async () =>
      endpoint.isProxy ? Number(await (await fetch(endpoint.url)).text()) : Number.NaN,
  };
}

async function startProxy(target: string, delayMs: number, closers: Closers): Promise<Endpoint> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  await start([process.execPath, "--import=tsx", file("delaying-proxy.ts")], {
    env: { PROXY_TARGET: target, PROXY_DELAY_MS: String(delayMs), PROXY_PORT: String(port) },
    ready: url,
    closers,
  });
  return { url, isProxy: true };
}

/** Starts it on a free port and waits until it responds. */
export async function launch(
  { command, env, port: wanted, readyPath }: Launch,
  closers: Closers,
): Promise<{ url: string; pid: number }> {
  const port = wanted ?? (await freePort());
  const url = `http://127.0.0.1:${port}`;
  const pid = await start(command, { env: env(port), ready: `${url}${readyPath}`, closers });
  return { url, pid };
}

/** Runs a command as a process, waits until it responds, and returns its process id. */
async function start(
  [command = "", ...args]: readonly string[],
  { env, ready, closers }: { env: Record<string, string>; ready: string; closers: Closers },
): Promise<number> {
  const child = spawn(command, args, {
    env: { PATH: process.env["PATH"], ...env },
    // Log lines are discarded, because reading them would load this process.
    stdio: ["ignore", "ignore", "pipe"],
  });
  closers.push(() => end(child));
  let output = "";
  child.stderr.on("data", (chunk: Buffer) => {
    if (output.length < 20_000) output += chunk.toString();
  });
  const untilMs = performance.now() + READY_WITHIN_MS;
  for (;;) {
    const answer = await fetch(ready).catch(() => undefined);
    if (answer?.ok) return child.pid ?? 0;
    if (child.exitCode !== null || performance.now() > untilMs)
      throw new Error(`${args.join(" ")} is not ready: ${output}`);
    await sleep(LOOK_EVERY_MS);
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  // A shell's child does not end with the shell and keeps this process running by its pipe. Our own server
  // stops its children itself.
  const below = child.spawnfile === SHELL ? familyOf(child.pid ?? 0).slice(1) : [];
  child.kill("SIGTERM");
  for (const pid of below) endIfThere(pid);
  const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
  await ended;
  clearTimeout(timer);
}

function endIfThere(pid: number): void {
  try {
    process.kill(pid, "SIGTERM");
  } catch {
    // It has ended with its parent.
  }
}
