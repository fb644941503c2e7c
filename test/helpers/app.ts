// The real service on a cloned database and a real chain, configured as in production: for `inject` or a real port.
import { randomBytes } from "node:crypto";
import type { FastifyInstance } from "fastify";
import type { Test } from "tap";
import { buildApp } from "../../server/app.ts";
import { loadConfig, type Config } from "../../server/config.ts";
import { GAS_BUDGET } from "../../server/core/gas.ts";
import { NETWORKS } from "../../server/core/networks.ts";
import type { Timings } from "../../server/core/timings.ts";
import { testChain, type TestChain, type TestChainOptions } from "./chain.ts";
import { freePort } from "../../server/local/free-port.ts";
import { sharedSchemas } from "./shared-schemas.ts";
import { checkResponsesAgainstSchemas } from "./conformance.ts";
import { testDatabase, type TestDatabase } from "./postgres.ts";

export interface TestAppOptions {
  /** Additional or overriding environment variables. */
  env?: Record<string, string>;
  /** Share a database or chain with another replica instead of making new ones. */
  database?: TestDatabase;
  chain?: TestChain;
  chainOptions?: TestChainOptions;
  /** Shorter timeouts and intervals, so that the test does not wait. */
  timings?: Partial<Timings>;
  /** Last changes to the resolved configuration (for example `local` facts). */
  configure?: (config: Config) => void;
  /** Compile the schemas of all routes at start, so that an invalid one stops it. */
  eager?: boolean;
  /** Listen on a loopback port (`baseUrl`); otherwise only `inject` works. */
  listen?: boolean;
  /** Called with the app before anything is registered on it. */
  observe?: (app: FastifyInstance) => void;
}

export interface TestApp {
  app: FastifyInstance;
  config: Config;
  baseUrl: string;
  database: TestDatabase;
  chain: TestChain;
  /** Every log line written so far. */
  logs: string[];
}

/** One random master key per test process. */
const MASTER_KEY = randomBytes(32).toString("base64");

/** Signs vouchers of agents' channels. */
export const CHANNEL_KEY = `0x${randomBytes(32).toString("hex")}` as const;

/** Gas budgets that a load test with thousands of payments does not reach. */
export const AMPLE_GAS = Object.keys(GAS_BUDGET)
  .map((name) => `${name}=1000000`)
  .join(",");

export function testEnvironment(options: {
  databaseUrl: string;
  chain: TestChain;
  port: number;
  env?: Record<string, string>;
}): Record<string, string> {
  return {
    PURSER_MODE: "production",
    // A test that sets API keys wants settlements without a key refused, unless it sets FACILITATOR_OPEN itself.
    FACILITATOR_OPEN: String(options.env?.["FACILITATOR_API_KEYS"] === undefined),
    PORT: String(options.port),
    PUBLIC_URL: `http://localhost:${options.port}`,
    DATABASE_URL: options.databaseUrl,
    [`RPC_URL_${options.chain.chainId}`]: options.chain.rpcUrl,
    NETWORKS: `eip155:${options.chain.chainId}`,
    RELAYER_PRIVATE_KEYS: options.chain.relayerPrivateKey,
    MASTER_KEYS: `test:${MASTER_KEY}`,
    ...(options.env?.["CUSTODY_SOCKET"] === undefined && { CHANNEL_KEYS: CHANNEL_KEY }),
    LOG_LEVEL: "info",
    WORKERS: "1",
    ...options.env,
  };
}

/** With the chain id of a known network, USDC is deployed at that network's address. */
function withTableToken(options: TestChainOptions = {}): TestChainOptions {
  const network = NETWORKS.find((candidate) => candidate.chainId === options.chainId);
  return network && options.usdc === undefined
    ? { ...options, usdc: network.usdc.address }
    : options;
}

export async function testApp(t: Test, options: TestAppOptions = {}): Promise<TestApp> {
  const chain = options.chain ?? (await testChain(t, withTableToken(options.chainOptions)));
  const database = options.database ?? (await testDatabase(t));
  const port = await freePort();
  const config = loadConfig(
    testEnvironment({ databaseUrl: database.url, chain, port, env: options.env }),
  );
  Object.assign(config.timings, options.timings);
  options.configure?.(config);
  const logs: string[] = [];
  const app = await buildApp(config, {
    logDestination: { write: (line) => void logs.push(line) },
    observe: (app) => {
      checkResponsesAgainstSchemas(app);
      options.observe?.(app);
    },
    schemaCompilers: options.eager === true ? {} : sharedSchemas,
  });
  t.teardown(() => app.close());
  if (options.listen) await app.listen({ host: config.host, port });
  return { app, config, baseUrl: config.publicUrl, database, chain, logs };
}
