/**
 * The one reader of the environment. `loadConfig` validates everything at once and throws one `ConfigError` that lists
 * every problem, so that an operator can fix them together.
 */
import { Type, type Static } from "typebox";
import { Value } from "typebox/value";
import { formOf } from "./core/configuration-keys.ts";
import { isLoopbackHost, readTrust, type Trust } from "./core/client-address.ts";
import { readDatabase, type DatabaseSettings } from "./core/database-settings.ts";
import { readKeySettings, type KeySettings, type Part } from "./core/key-settings.ts";
import { readMailSettings, type MailSettings } from "./core/mail-settings.ts";
import {
  type FacilitatorAccess,
  isClosed,
  readFacilitatorAccess,
} from "./core/merchant-settings.ts";
import { parseDecimal } from "./core/money.ts";
import {
  listed,
  LOCAL_CHAIN_ID,
  readNetworks,
  type NetworkConfig,
} from "./core/network-settings.ts";
import { readRateLimits, type RateLimits } from "./core/rate-limits.ts";
import { withSecretFiles } from "./core/secret-files.ts";
import { TIMINGS, type Timings } from "./core/timings.ts";
import { readTracing, type TracingSettings } from "./core/tracing-settings.ts";
import { readWorkers, usualWorkers, type WorkerSettings } from "./core/worker-settings.ts";

/** At least one day: answers for repeated requests must not be deleted on the same day. */
const DAYS = "^[1-9][0-9]{0,4}$";
export { LOCAL_CHAIN_ID, type NetworkConfig };

const MAX_FETCH_BYTES = 64 * 1024 * 1024;

export type Mode = "local" | "production";

const EnvSchema = Type.Object({
  PURSER_MODE: Type.Optional(Type.Union([Type.Literal("local"), Type.Literal("production")])),
  HOST: Type.String({ minLength: 1, default: "127.0.0.1" }),
  PORT: Type.String({ pattern: "^[0-9]{1,5}$", default: "3000" }),
  PUBLIC_URL: Type.Optional(Type.String()),
  DATA_DIR: Type.String({ minLength: 1, default: ".data" }),
  DATABASE_URL: Type.Optional(Type.String({ pattern: "^postgres(ql)?://" })),
  DATABASE_DIRECT_URL: Type.Optional(Type.String({ pattern: "^postgres(ql)?://" })),
  NETWORKS: Type.String({ default: `eip155:${LOCAL_CHAIN_ID}` }),
  RELAYER_PRIVATE_KEYS: Type.Optional(Type.String()),
  MASTER_KEYS: Type.Optional(Type.String()),
  MASTER_KEY_ACTIVE: Type.Optional(Type.String()),
  RELAYER_KMS_KEYS: Type.Optional(Type.String()),
  KMS_CACHE_SECONDS: Type.String({ pattern: "^[0-9]{1,3}$", default: "60" }),
  CUSTODY_SOCKET: Type.Optional(Type.String()),
  FETCH_PRIVATE_ORIGINS: Type.Optional(Type.String()),
  FETCH_MAX_BYTES: Type.String({ pattern: "^[1-9][0-9]{4,8}$", default: "5242880" }),
  FACILITATOR_API_KEYS: Type.Optional(Type.String()),
  FACILITATOR_OPEN: Type.Union([Type.Literal("true"), Type.Literal("false")], { default: "false" }),
  DEMO_PAY_TO: Type.Optional(Type.String({ pattern: "^0x[0-9a-fA-F]{40}$" })),
  LOG_LEVEL: Type.Union(
    ["fatal", "error", "warn", "info", "debug", "trace", "silent"].map((level) =>
      Type.Literal(level),
    ),
    { default: "info" },
  ),
  TRUST_PROXY: Type.Optional(Type.String()),
  METRICS_TOKEN: Type.Optional(Type.String({ minLength: 16 })),
  RATE_LIMITS: Type.Optional(Type.String()),
  REQUEST_TIMEOUT_MS: Type.String({ pattern: "^[0-9]{3,6}$", default: "30000" }),
  CONNECTIONS_PER_ADDRESS: Type.String({ pattern: "^[1-9][0-9]{0,4}$", default: "1000" }),
  SETTLE_WAIT_MS: Type.String({ pattern: "^[0-9]{1,5}$", default: "20000" }),
  MIN_PAYMENT: Type.String({ pattern: "^(0|[1-9][0-9]{0,5})(\\.[0-9]{1,6})?$", default: "0.0001" }),
  FORCED_CANCELS_PER_DAY: Type.String({ pattern: "^[0-9]{1,6}$", default: "5" }),
  RETAIN_BLOCKED_DAYS: Type.String({ pattern: DAYS, default: "90" }),
  RETAIN_BYTES_DAYS: Type.String({ pattern: DAYS, default: "30" }),
  RETAIN_FACILITATED_DAYS: Type.String({ pattern: DAYS, default: "90" }),
  RETAIN_STATISTICS_DAYS: Type.String({ pattern: DAYS, default: "400" }),
  GAS_CAP_PER_ITEM: Type.String({ pattern: "^[0-9]{5,9}$", default: "300000" }),
  OPERATOR: Type.Optional(Type.String({ pattern: "^[ -~]{1,100}$" })),
  ERC6492_FACTORIES: Type.Optional(
    Type.String({ pattern: "^\\s*0x[0-9a-fA-F]{40}(\\s*,\\s*0x[0-9a-fA-F]{40})*\\s*$" }),
  ),
});
type Env = Static<typeof EnvSchema>;

/** How long growing tables are kept (infra/retention.ts). */
export interface Retention {
  blockedDays: number;
  bytesDays: number;
  facilitatedDays: number;
  statisticsDays: number;
}

export interface Config extends DatabaseSettings, FacilitatorAccess, KeySettings, WorkerSettings {
  /** Local mode is for one machine: play money and generated keys. Nothing else decides whether those exist. */
  mode: Mode;
  host: string;
  port: number;
  /** The `{base_url}` of clients, without a trailing slash. */
  publicUrl: string;
  dataDir: string;
  networks: [NetworkConfig, ...NetworkConfig[]];
  /** Undefined: no e-mail is sent. */
  mail: MailSettings | undefined;
  fetchPrivateOrigins: string[];
  /** How much of a target's response x402-fetch passes on. */
  fetchMaxBytes: number;
  demoPayTo: `0x${string}` | undefined;
  logLevel: string;
  trustProxy: Trust;
  metricsToken: string | undefined;
  rateLimits: RateLimits;
  /** The time limit for a request to arrive completely, and for a response to be read. */
  requestTimeoutMs: number;
  connectionsPerAddress: number;
  /** How long a settle or spend waits for finality before it returns "pending". */
  settleWaitMs: number;
  /** The dust floor: smaller payments are not worth the gas. Withdrawals are exempt. */
  minPaymentAtomic: bigint;
  /** How many cancellations one payee may cause for one owner in a day. */
  forcedCancelsPerDay: bigint;
  gasCapPerItem: bigint;
  retention: Retention;
  /** Factories, in lower case, that may deploy a payer's smart wallet at our gas (ERC-6492). */
  erc6492Factories: string[];
  tracing: TracingSettings | undefined;
  /** The person at work, for the audit of operators' changes. */
  operator: string | undefined;
  timings: Timings;
  /** Only in local mode: helpers that must not exist in production. */
  local: LocalFacts | undefined;
}

export interface LocalFacts {
  faucetPrivateKey: `0x${string}`;
  demoOwnerPrivateKey: `0x${string}`;
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

/** Which local services must be started, because the environment does not configure them. */
export function missingServices(config: Config): { postgres: boolean; chain: boolean } {
  return {
    postgres: config.databaseUrl === undefined,
    chain: config.networks.some((network) => network.rpcUrls.length === 0),
  };
}

export function loadConfig(
  environment: Record<string, string | undefined>,
  part: Part = "service",
): Config {
  const problems: string[] = [];
  environment = withSecretFiles(environment, problems);
  const env = readEnv(environment, problems);
  const port = Number(env.PORT);
  if (port > 65_535) problems.push("PORT must be at most 65535");
  const networks = readNetworks(listed(env.NETWORKS), environment, problems);
  const mode = readMode(env, networks, problems);
  const isLocal = mode === "local";
  const isService = part === "service";
  const keys = readKeySettings(env, { part, isLocal }, problems);
  const publicUrl = isService ? readPublicUrl(env, mode, problems) : "http://localhost";
  const mail = readMailSettings(environment, problems);
  const fetchPrivateOrigins = listed(env.FETCH_PRIVATE_ORIGINS).map((text) =>
    readOrigin(text, "FETCH_PRIVATE_ORIGINS", problems),
  );
  const fetchMaxBytes = Number(env.FETCH_MAX_BYTES);
  if (!(fetchMaxBytes <= MAX_FETCH_BYTES))
    problems.push(`FETCH_MAX_BYTES must be at most ${MAX_FETCH_BYTES}: answers are held in memory`);
  const settleWaitMs = Number(env.SETTLE_WAIT_MS);
  if (settleWaitMs > 25_000)
    problems.push("SETTLE_WAIT_MS must be at most 25000: stock clients give up after 30 s");
  const { trust, problem } = readTrust(env.TRUST_PROXY);
  if (problem !== undefined) problems.push(problem);
  const minPayment = parseDecimal(env.MIN_PAYMENT);
  const tracing = readTracing(environment, problems);
  const database = readDatabase(env, problems);
  const workers = readWorkers(environment, { isLocal, usual: usualWorkers() }, problems);
  const rateLimits = readRateLimits(env.RATE_LIMITS);
  problems.push(...rateLimits.problems);
  const access = readFacilitatorAccess(env, environment, problems);
  if (isService && !isLocal && !access.facilitatorOpen && !isClosed(access))
    problems.push(
      "FACILITATOR_API_KEYS is missing (or set FACILITATOR_OPEN=true to let third parties settle from your gas budget)",
    );
  if (problems.length > 0) {
    if (!isLocal && env.PURSER_MODE === undefined) problems.push(WHY_PRODUCTION);
    throw new ConfigError(problems);
  }
  return {
    mode,
    // Fastify would open a second socket for the other address of `localhost`, but connections are counted per socket.
    host: env.HOST === "localhost" ? "127.0.0.1" : env.HOST,
    port,
    publicUrl,
    dataDir: env.DATA_DIR,
    ...database,
    ...workers,
    networks: networks as [NetworkConfig, ...NetworkConfig[]],
    ...keys,
    mail,
    fetchPrivateOrigins: isLocal ? [...fetchPrivateOrigins, publicUrl] : fetchPrivateOrigins,
    fetchMaxBytes,
    ...access,
    demoPayTo: env.DEMO_PAY_TO as `0x${string}` | undefined,
    logLevel: env.LOG_LEVEL,
    trustProxy: trust,
    metricsToken: env.METRICS_TOKEN,
    rateLimits: rateLimits.limits,
    requestTimeoutMs: Number(env.REQUEST_TIMEOUT_MS),
    connectionsPerAddress: Number(env.CONNECTIONS_PER_ADDRESS),
    settleWaitMs,
    minPaymentAtomic: minPayment.ok ? minPayment.atomic : 0n,
    forcedCancelsPerDay: BigInt(env.FORCED_CANCELS_PER_DAY),
    gasCapPerItem: BigInt(env.GAS_CAP_PER_ITEM),
    retention: {
      blockedDays: Number(env.RETAIN_BLOCKED_DAYS),
      bytesDays: Number(env.RETAIN_BYTES_DAYS),
      facilitatedDays: Number(env.RETAIN_FACILITATED_DAYS),
      statisticsDays: Number(env.RETAIN_STATISTICS_DAYS),
    },
    erc6492Factories: listed(env.ERC6492_FACTORIES?.toLowerCase()),
    tracing,
    operator: env.OPERATOR,
    timings: { ...TIMINGS },
    local: undefined,
  };
}

const WHY_PRODUCTION =
  "PURSER_MODE is not set, so the mode is production: local is the default only if everything is embedded and HOST is this machine";

/** Local mode may use embedded services; production must configure all external ones, and refuses embedded ones. */
function readMode(env: Env, networks: NetworkConfig[], problems: string[]): Mode {
  const outside = [
    ...(env.DATABASE_URL === undefined ? [] : ["DATABASE_URL"]),
    ...networks.flatMap(({ chainId, rpcUrls }) =>
      rpcUrls.length === 0 ? [] : [`RPC_URL_${chainId}`],
    ),
  ];
  const isOnThisMachine = isLoopbackHost(env.HOST);
  const mode =
    env.PURSER_MODE ?? (outside.length === 0 && isOnThisMachine ? "local" : "production");
  if (mode === "local") {
    for (const key of outside)
      problems.push(`${key} is set, but PURSER_MODE=local uses only embedded parts`);
    if (!isOnThisMachine)
      problems.push(
        `HOST is ${env.HOST}, but PURSER_MODE=local is for this machine only (127.0.0.1)`,
      );
    return mode;
  }
  if (env.DATABASE_URL === undefined)
    problems.push("DATABASE_URL is missing (no database is embedded in production)");
  for (const { chainId, name, rpcUrls } of networks)
    if (rpcUrls.length === 0 && chainId === LOCAL_CHAIN_ID)
      problems.push(
        `RPC_URL_${chainId} is missing (an RPC endpoint of ${name}; no chain is embedded in production)`,
      );
  return mode;
}

/** The clients' URL: https, unless it is this machine itself. */
function readPublicUrl(env: Env, mode: Mode, problems: string[]): string {
  const port = Number(env.PORT) <= 65_535 ? env.PORT : "3000";
  if (mode === "production" && env.PUBLIC_URL === undefined && !isLoopbackHost(env.HOST))
    problems.push("PUBLIC_URL is missing (the https origin that clients see)");
  const origin = readOrigin(env.PUBLIC_URL ?? `http://localhost:${port}`, "PUBLIC_URL", problems);
  const url = URL.canParse(origin) ? new URL(origin) : undefined;
  if (mode === "production" && url?.protocol === "http:" && !isLoopbackHost(url.hostname))
    problems.push("PUBLIC_URL must be https, because keys and sessions must be encrypted");
  return origin;
}

function readEnv(environment: Record<string, string | undefined>, problems: string[]): Env {
  const picked: Record<string, string> = {};
  for (const key of Object.keys(EnvSchema.properties)) {
    const value = environment[key];
    // An empty value means "not set": compose files and shells leave such values.
    if (value !== undefined && value !== "") picked[key] = value;
  }
  const env = Value.Default(EnvSchema, picked) as Env;
  const wrong = new Set(Value.Errors(EnvSchema, env).map((error) => error.instancePath.slice(1)));
  // The value of a secret is never repeated; the key and the form are sufficient.
  for (const key of wrong) problems.push(`${key} must be ${formOf(key) ?? "valid"}`);
  return env;
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
