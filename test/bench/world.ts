// Starts a chain, our server and the reference facilitator for one row, and takes them down after it.
import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { fileURLToPath } from "node:url";
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts";
import { freePort } from "../../server/local/free-port.ts";
import { migrate } from "../../server/infra/db/migrate.ts";
import { AMPLE_GAS, testEnvironment } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { testDatabase } from "../helpers/postgres.ts";
import type { World, WorldOptions } from "./context.ts";

const READY_WITHIN_MS = 120_000;
const NATIVE_WEI = 10n ** 24n;
const file = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

export async function startWorld(options: WorldOptions = {}): Promise<World> {
  const closers: (() => unknown)[] = [];
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
    const rpcUrl =
      options.rpcDelayMs === undefined
        ? chain.rpcUrl
        : await startProxy(chain.rpcUrl, options.rpcDelayMs, closers);
    const ourKeys = Array.from({ length: options.relayers ?? 1 }, () => generatePrivateKey());
    const referenceKey = generatePrivateKey();
    for (const key of [...ourKeys, referenceKey]) {
      const address = privateKeyToAddress(key);
      await chain.testClient.setBalance({ address, value: NATIVE_WEI });
    }
    const ports = await Promise.all(
      Array.from({ length: options.replicas ?? 1 }, () => freePort()),
    );
    const environment = {
      ...testEnvironment({ databaseUrl: database.url, chain: { ...chain, rpcUrl }, port: 0 }),
      RELAYER_PRIVATE_KEYS: ourKeys.join(","),
      [`GAS_BUDGET_${chain.chainId}`]: AMPLE_GAS,
      MASTER_KEYS: `bench:${randomBytes(32).toString("base64")}`,
      NODE_ENV: "production",
      ...options.env,
    };
    const urls = ports.map((port) => `http://127.0.0.1:${port}`);
    const pids: number[] = [];
    for (const port of ports) {
      const where = { PORT: String(port), PUBLIC_URL: `http://localhost:${port}` };
      pids.push(await start("our-server.ts", { ...environment, ...where }, closers));
    }
    let reference = "";
    if (options.withoutReference !== true) {
      const referencePort = await freePort();
      reference = `http://127.0.0.1:${referencePort}`;
      await start(
        "reference-facilitator.ts",
        {
          REFERENCE_RPC_URL: rpcUrl,
          REFERENCE_CHAIN_ID: String(chain.chainId),
          REFERENCE_PRIVATE_KEY: referenceKey,
          REFERENCE_PORT: String(referencePort),
          NODE_ENV: "production",
        },
        closers,
      );
    }
    return {
      chain,
      databaseUrl: database.url,
      ours: urls[0] ?? "",
      replicas: urls,
      pids,
      reference,
      relayerAddresses: {
        ours: ourKeys.map((key) => privateKeyToAddress(key)),
        reference: [privateKeyToAddress(referenceKey)],
      },
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function startProxy(
  target: string,
  delayMs: number,
  closers: (() => unknown)[],
): Promise<string> {
  const port = await freePort();
  await start(
    "delaying-proxy.ts",
    { PROXY_TARGET: target, PROXY_DELAY_MS: String(delayMs), PROXY_PORT: String(port) },
    closers,
  );
  return `http://127.0.0.1:${port}`;
}

/** Runs a file of this folder as its own process until it says "ready", and answers its id. */
async function start(
  name: string,
  environment: Record<string, string>,
  closers: (() => unknown)[],
): Promise<number> {
  const child = spawn(process.execPath, ["--import=tsx", file(name)], {
    env: { PATH: process.env["PATH"], ...environment },
    // Log lines go nowhere: reading them would be this process's work, not the server's.
    stdio: ["ignore", "ignore", "pipe"],
  });
  closers.push(() => end(child));
  let output = "";
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${name} is not ready`)), READY_WITHIN_MS);
    const read = (chunk: Buffer): void => {
      if (output.length < 20_000) output += chunk.toString();
      if (!/^ready$/m.test(output)) return;
      clearTimeout(timer);
      resolve();
    };
    child.stderr.on("data", read);
    child.on("exit", (code) => {
      clearTimeout(timer);
      reject(new Error(`${name} ended with ${code}: ${output}`));
    });
  });
  return child.pid ?? 0;
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
  await ended;
  clearTimeout(timer);
}
