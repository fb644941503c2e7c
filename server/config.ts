/**
 * The one reader of the environment. `loadConfig` validates everything at once and throws one
 * `ConfigError` that lists every problem, so that an operator fixes them in one go.
 */
import { Type, type Static } from "typebox";
import { Value } from "typebox/value";
import { findNetwork, type NetworkFacts } from "./core/networks.ts";

export const LOCAL_CHAIN_ID = 5042002;

const EnvSchema = Type.Object({
  HOST: Type.String({ minLength: 1, default: "127.0.0.1" }),
  PORT: Type.String({ pattern: "^[0-9]{1,5}$", default: "3000" }),
  PUBLIC_URL: Type.Optional(Type.String()),
  DATA_DIR: Type.String({ minLength: 1, default: ".data" }),
  DATABASE_URL: Type.Optional(Type.String({ pattern: "^postgres(ql)?://" })),
  NETWORKS: Type.String({ default: `eip155:${LOCAL_CHAIN_ID}` }),
  RELAYER_PRIVATE_KEYS: Type.Optional(Type.String()),
  MASTER_KEYS: Type.Optional(Type.String()),
  MASTER_KEY_ACTIVE: Type.Optional(Type.String()),
  FETCH_PRIVATE_ORIGINS: Type.Optional(Type.String()),
  FACILITATOR_API_KEYS: Type.Optional(Type.String()),
  DEMO_PAY_TO: Type.Optional(Type.String({ pattern: "^0x[0-9a-fA-F]{40}$" })),
  LOG_LEVEL: Type.Union(
    ["fatal", "error", "warn", "info", "debug", "trace", "silent"].map((level) =>
      Type.Literal(level),
    ),
    { default: "info" },
  ),
  TRUST_PROXY: Type.Optional(Type.String()),
  METRICS_TOKEN: Type.Optional(Type.String({ minLength: 16 })),
  SETTLE_WAIT_MS: Type.String({ pattern: "^[0-9]{1,5}$", default: "20000" }),
  DAILY_GAS_CEILING: Type.String({ pattern: "^[0-9]{1,18}$", default: "2000000000" }),
  GAS_CAP_PER_ITEM: Type.String({ pattern: "^[0-9]{5,9}$", default: "300000" }),
  ERC6492_FACTORIES: Type.Optional(
    Type.String({ pattern: "^\\s*0x[0-9a-fA-F]{40}(\\s*,\\s*0x[0-9a-fA-F]{40})*\\s*$" }),
  ),
});
type Env = Static<typeof EnvSchema>;

/** A configured network: the table's facts and where to reach it. */
export interface NetworkConfig extends NetworkFacts {
  /** In order of preference. Empty only for the local chain, before the local world has started. */
  rpcUrls: string[];
}

export interface Config {
  host: string;
  port: number;
  /** The `{base_url}` clients see, without a trailing slash. */
  publicUrl: string;
  dataDir: string;
  databaseUrl: string | undefined;
  networks: [NetworkConfig, ...NetworkConfig[]];
  relayerPrivateKeys: `0x${string}`[];
  masterKeys: MasterKey[];
  masterKeyActive: string;
  fetchPrivateOrigins: string[];
  facilitatorApiKeys: string[];
  demoPayTo: `0x${string}` | undefined;
  logLevel: string;
  trustProxy: boolean | string | ((address: string, hop: number) => boolean);
  metricsToken: string | undefined;
  /** How long a settle or spend waits for finality before it answers "pending". */
  settleWaitMs: number;
  /** Gas units per UTC day for facilitated work, all lanes of a network together. */
  dailyGasCeiling: bigint;
  gasCapPerItem: bigint;
  /** Factories, in lower case, that may deploy a payer's smart wallet at our gas (ERC-6492). */
  erc6492Factories: string[];
  /** Present only in the local world: the helpers that must not exist in production. */
  local: LocalFacts | undefined;
}

export interface LocalFacts {
  faucetPrivateKey: `0x${string}`;
  demoOwnerPrivateKey: `0x${string}`;
}

export interface MasterKey {
  kid: string;
  key: Uint8Array;
}

export class ConfigError extends Error {
  readonly problems: string[];
  constructor(problems: string[]) {
    super(
      `The configuration has ${problems.length === 1 ? "a problem" : `${problems.length} problems`}:\n${problems.map((problem) => `  - ${problem}`).join("\n")}`,
    );
    this.name = "ConfigError";
    this.problems = problems;
  }
}

const list = (text: string | undefined): string[] =>
  (text ?? "")
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");

/** What the environment needs from the local world; the rest is production shape. */
export function missingServices(config: Config): { postgres: boolean; chain: boolean } {
  return {
    postgres: config.databaseUrl === undefined,
    chain: config.networks.some((network) => network.rpcUrls.length === 0),
  };
}

export function loadConfig(environment: Record<string, string | undefined>): Config {
  const problems: string[] = [];
  const env = readEnv(environment, problems);
  const port = Number(env.PORT);
  if (port > 65_535) problems.push("PORT must be at most 65535");
  const networks = readNetworks(env, environment, problems);
  const isLocal =
    env.DATABASE_URL === undefined || networks.some((network) => network.rpcUrls.length === 0);
  const masterKeys = readMasterKeys(env, isLocal, problems);
  const relayerPrivateKeys = readRelayerKeys(env, isLocal, problems);
  const active = env.MASTER_KEY_ACTIVE ?? masterKeys[0]?.kid ?? "";
  if (masterKeys.length > 0 && !masterKeys.some((key) => key.kid === active)) {
    problems.push(`MASTER_KEY_ACTIVE names "${active}", which is not in MASTER_KEYS`);
  }
  const publicUrl = readOrigin(
    env.PUBLIC_URL ?? `http://localhost:${port <= 65_535 ? port : 3000}`,
    "PUBLIC_URL",
    problems,
  );
  const fetchPrivateOrigins = list(env.FETCH_PRIVATE_ORIGINS).map((text) =>
    readOrigin(text, "FETCH_PRIVATE_ORIGINS", problems),
  );
  const settleWaitMs = Number(env.SETTLE_WAIT_MS);
  if (settleWaitMs > 25_000)
    problems.push("SETTLE_WAIT_MS must be at most 25000: stock clients give up after 30 s");
  if (problems.length > 0) throw new ConfigError(problems);
  return {
    host: env.HOST,
    port,
    publicUrl,
    dataDir: env.DATA_DIR,
    databaseUrl: env.DATABASE_URL,
    networks: networks as [NetworkConfig, ...NetworkConfig[]],
    relayerPrivateKeys,
    masterKeys,
    masterKeyActive: active,
    fetchPrivateOrigins: isLocal ? [...fetchPrivateOrigins, publicUrl] : fetchPrivateOrigins,
    facilitatorApiKeys: list(env.FACILITATOR_API_KEYS),
    demoPayTo: env.DEMO_PAY_TO as `0x${string}` | undefined,
    logLevel: env.LOG_LEVEL,
    trustProxy: readTrustProxy(env.TRUST_PROXY),
    metricsToken: env.METRICS_TOKEN,
    settleWaitMs,
    dailyGasCeiling: BigInt(env.DAILY_GAS_CEILING),
    gasCapPerItem: BigInt(env.GAS_CAP_PER_ITEM),
    erc6492Factories: list(env.ERC6492_FACTORIES?.toLowerCase()),
    local: undefined,
  };
}

function readEnv(environment: Record<string, string | undefined>, problems: string[]): Env {
  const picked: Record<string, string> = {};
  for (const key of Object.keys(EnvSchema.properties)) {
    const value = environment[key];
    // An empty value means "not set": compose files and shells leave such behind.
    if (value !== undefined && value !== "") picked[key] = value;
  }
  const env = Value.Default(EnvSchema, picked) as Env;
  for (const error of Value.Errors(EnvSchema, env)) {
    const key = error.instancePath.slice(1);
    // A secret's value is never echoed; the key and the rule are enough.
    problems.push(`${key} ${error.message}`);
  }
  return env;
}

function readNetworks(
  env: Env,
  environment: Record<string, string | undefined>,
  problems: string[],
): NetworkConfig[] {
  const networks: NetworkConfig[] = [];
  for (const id of list(env.NETWORKS)) {
    const facts = findNetwork(id);
    if (!facts) {
      problems.push(`NETWORKS names "${id}", which is not in the network table`);
      continue;
    }
    if (networks.some((network) => network.chainId === facts.chainId)) {
      problems.push(`NETWORKS names ${facts.id} twice`);
      continue;
    }
    const key = `RPC_URL_${facts.chainId}`;
    const rpcUrls = list(environment[key]);
    for (const url of rpcUrls) {
      if (!/^https?:\/\/./.test(url) || !URL.canParse(url))
        problems.push(`${key} must list http(s) URLs`);
    }
    if (rpcUrls.length === 0 && facts.chainId !== LOCAL_CHAIN_ID)
      problems.push(`${key} is missing (an RPC endpoint of ${facts.name})`);
    const depthOf = (name: string, fallback: number): number => {
      const given = environment[`${name}_${facts.chainId}`];
      if (given !== undefined && !/^[1-9][0-9]{0,2}$/.test(given))
        problems.push(`${name}_${facts.chainId} must be a whole number from 1 to 999`);
      return given === undefined ? fallback : Number(given);
    };
    const confirmations = depthOf("CONFIRMATIONS", facts.confirmations);
    // What is final is told: never later.
    const inclusionDepth = Math.min(
      depthOf("INCLUSION_DEPTH", facts.inclusionDepth),
      confirmations,
    );
    networks.push({ ...facts, rpcUrls, confirmations, inclusionDepth });
  }
  if (networks.length === 0 && problems.length === 0) problems.push("NETWORKS is empty");
  return networks;
}

const MASTER_KEY_HINT = "make one with: openssl rand -base64 32";

function readMasterKeys(env: Env, isLocal: boolean, problems: string[]): MasterKey[] {
  const entries = list(env.MASTER_KEYS);
  if (entries.length === 0 && !isLocal)
    problems.push(`MASTER_KEYS is missing (kid:base64 of 32 random bytes; ${MASTER_KEY_HINT})`);
  const keys: MasterKey[] = [];
  for (const entry of entries) {
    const [, kid, encoded] = /^([A-Za-z0-9_-]{1,32}):([A-Za-z0-9+/]+={0,2})$/.exec(entry) ?? [];
    if (kid === undefined || encoded === undefined) {
      problems.push("MASTER_KEYS has an entry that is not kid:base64");
      continue;
    }
    const key = new Uint8Array(Buffer.from(encoded, "base64"));
    if (key.length !== 32)
      problems.push(
        `MASTER_KEYS: key "${kid}" has ${key.length} bytes instead of 32 (${MASTER_KEY_HINT})`,
      );
    // 32 random bytes hold about 30 distinct values; patterns, words and examples hold few.
    else if (new Set(key).size < 20 || isSequence(key) || isText(key))
      problems.push(
        `MASTER_KEYS: key "${kid}" looks like an example, not random (${MASTER_KEY_HINT})`,
      );
    if (keys.some((other) => other.kid === kid)) problems.push(`MASTER_KEYS names "${kid}" twice`);
    keys.push({ kid, key });
  }
  return keys;
}

const isSequence = (key: Uint8Array): boolean => {
  const step = ((key[1] ?? 0) - (key[0] ?? 0)) & 255;
  return key.every((byte, index) => index === 0 || ((byte - (key[index - 1] ?? 0)) & 255) === step);
};
const isText = (key: Uint8Array): boolean => key.every((byte) => byte >= 0x20 && byte < 0x7f);

function readRelayerKeys(env: Env, isLocal: boolean, problems: string[]): `0x${string}`[] {
  const keys = list(env.RELAYER_PRIVATE_KEYS);
  if (keys.length === 0 && !isLocal)
    problems.push("RELAYER_PRIVATE_KEYS is missing (the account that pays the gas)");
  if (keys.some((key) => !/^0x[0-9a-fA-F]{64}$/.test(key)))
    problems.push("RELAYER_PRIVATE_KEYS must list 0x-prefixed 32-byte keys");
  if (new Set(keys.map((key) => key.toLowerCase())).size !== keys.length)
    problems.push("RELAYER_PRIVATE_KEYS lists a key twice");
  return keys as `0x${string}`[];
}

function readOrigin(text: string, key: string, problems: string[]): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (
    !url ||
    !/^https?:$/.test(url.protocol) ||
    url.pathname !== "/" ||
    url.search !== "" ||
    url.username !== ""
  ) {
    problems.push(`${key} must be an origin such as https://purser.example.com`);
    return text;
  }
  return url.origin;
}

/** `true`, `false`, a number of proxies in front, or a list of their addresses. */
function readTrustProxy(text: string | undefined): Config["trustProxy"] {
  if (text === undefined || text === "false") return false;
  if (text === "true") return true;
  return /^[0-9]+$/.test(text) ? (_address, hop) => hop < Number(text) : text;
}
