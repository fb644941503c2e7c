/**
 * The one reader of the environment, by the table in core/configuration.ts. `loadConfig` validates everything at once
 * and throws one `ConfigError` that lists every problem, so that an operator can fix them together.
 */
import { readFileSync } from "node:fs";
import { compile } from "@fastify/proxy-addr";
import { hexToBytes } from "viem";
import type { StaticDecode, TObject, TProperties } from "typebox";
import { Value } from "typebox/value";
import { isLoopbackHost, type Trust } from "./core/client-address.ts";
import {
  CHAIN_SETTINGS,
  CONSTANT_NOW,
  CUSTODY_KEYS,
  REMOVED,
  SETTINGS,
} from "./core/configuration.ts";
import { chargesFees, type FeeTerms } from "./core/fees.ts";
import { MASTER_KEY_HINT } from "./core/master-keys.ts";
import { isClosed } from "./core/merchant-settings.ts";
import { parseDecimal } from "./core/money.ts";
import { passkeyPlaces } from "./core/passkey-places.ts";
import { LOCAL_CHAIN_ID } from "./core/network-settings.ts";
import type { NetworkFacts } from "./core/networks.ts";
import { InvalidSetting, listed, type Documented } from "./core/setting.ts";
import { shownSettings } from "./core/shown-settings.ts";
import { TIMINGS } from "./core/timings.ts";
import { usualWorkers } from "./core/worker-settings.ts";

export { LOCAL_CHAIN_ID };

export type Environment = Record<string, string | undefined>;
/** Local mode is for one machine: play money and generated keys. Nothing else decides whether those exist. */
export type Mode = "local" | "production";
/** The service, or the custody process, which holds the master keys and signs only for agents' wallets. */
export type Part = "service" | "custody";

export type Config = ReturnType<typeof loadConfig>;
export type NetworkConfig = ReturnType<typeof networkOf>;
/** How long growing tables are kept (infra/retention.ts). */
export type Retention = Config["retention"];

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

/**
 * Tells whether a connection comes from one of our proxies, as Fastify does. A number of proxies trusts every
 * connection's peer.
 */
function proxiesOf(trust: Trust): (peer: string) => boolean {
  if (trust === false) return () => false;
  const isTrusted = typeof trust === "function" ? trust : compile(trust);
  return (peer) => isTrusted(peer, 0);
}

/** Where callers connect directly. */
const CONNECTIONS_PER_CALLER = 1_000;

/** No operator needs other values; tests do. */
const FIXED = {
  /** How much of a target's response x402-fetch passes on. It is held in memory. */
  fetchMaxBytes: 5 * 1024 * 1024,
  /** How many cancellations one payee may cause for one owner in a day. */
  forcedCancelsPerDay: 5n,
  /** How many units of gas one payment may use. */
  gasCapPerItem: 300_000n,
};

export function loadConfig(environment: Environment, part: Part = "service") {
  const problems: string[] = [];
  const texts = readTexts(environment, part, problems);
  const isSet = (key: string): boolean => texts.has(key);
  const env = readSettings(SETTINGS, texts, problems);
  const networks = env.NETWORKS.map((facts) => networkOf(facts, texts, problems));
  const external = ["DATABASE_URL", ...networks.map(({ chainId }) => `RPC_URL_${chainId}`)].filter(
    isSet,
  );
  const isOnThisMachine = isLoopbackHost(env.HOST);
  const mode: Mode =
    env.PURSER_MODE ?? (external.length === 0 && isOnThisMachine ? "local" : "production");
  const isLocal = mode === "local";
  const publicUrl = env.PUBLIC_URL ?? `http://localhost:${env.PORT}`;
  const isService = part === "service";
  /** The master keys are in another process. */
  const hasCustody = isService && isSet("CUSTODY_SOCKET");
  const masterKeys = hasCustody ? [] : env.MASTER_KEYS;
  const masterKeyActive = env.MASTER_KEY_ACTIVE ?? masterKeys[0]?.kid ?? "";
  const access = {
    facilitatorApiKeys: env.FACILITATOR_API_KEYS,
    facilitatorOpen: env.FACILITATOR_OPEN,
    merchants: env.MERCHANTS,
  };

  const fees: FeeTerms = {
    perSettlementAtomic: env.FEE_PER_SETTLEMENT,
    partsPerMillion: env.FEE_PER_MILLE,
    creditAtomic: env.FEE_CREDIT,
    payTo: env.FEE_ADDRESS,
  };

  // Rules between keys.
  const need = (key: string, hint: string): void => {
    if (!isSet(key)) problems.push(`${key} is missing (${hint})`);
  };
  const refuse = (isWrong: boolean, problem: string): void => {
    if (isWrong) problems.push(problem);
  };
  if (isLocal) {
    for (const key of external)
      problems.push(`${key} is set, but PURSER_MODE=local uses only embedded parts`);
    refuse(
      !isOnThisMachine,
      `HOST is ${env.HOST}, but PURSER_MODE=local is for this machine only (127.0.0.1)`,
    );
    refuse(
      isSet("RELAYER_KMS_KEYS"),
      "RELAYER_KMS_KEYS is set, but PURSER_MODE=local creates its own accounts",
    );
    refuse(
      hasCustody,
      "CUSTODY_SOCKET is set, but PURSER_MODE=local keeps its keys in the service",
    );
  } else {
    need("DATABASE_URL", "no database is embedded in production");
    if (!hasCustody) need("MASTER_KEYS", `kid:base64 of 32 random bytes; ${MASTER_KEY_HINT}`);
  }
  if (isService && !isLocal) {
    if (!isOnThisMachine) need("PUBLIC_URL", "the https origin that clients see");
    const { protocol, hostname } = new URL(publicUrl);
    refuse(
      protocol === "http:" && !isLoopbackHost(hostname),
      "PUBLIC_URL must be https, because keys and sessions must be encrypted",
    );
    if (!isSet("RELAYER_KMS_KEYS"))
      need("RELAYER_PRIVATE_KEYS", "the account that pays the gas; or set RELAYER_KMS_KEYS");
    if (!access.facilitatorOpen && !isClosed(access))
      need(
        "FACILITATOR_API_KEYS",
        "or set FACILITATOR_OPEN=true to let third parties settle from your gas budget",
      );
  }
  for (const { chainId, name, nativeSymbol, nativePrice } of networks) {
    if (!isLocal || chainId !== LOCAL_CHAIN_ID)
      need(`RPC_URL_${chainId}`, `an RPC endpoint of ${name}`);
    if (isService && nativePrice === undefined)
      need(`NATIVE_PRICE_${chainId}`, `USDC for one ${nativeSymbol}, which pays for gas`);
  }
  refuse(
    isSet("DATABASE_DIRECT_URL") && !isSet("DATABASE_URL"),
    "DATABASE_DIRECT_URL is set, but DATABASE_URL (the pooler's) is missing",
  );
  for (const url of env.FOREIGN_CATALOGUES.map((text) => new URL(text))) {
    refuse(
      url.protocol === "http:" && !env.FETCH_PRIVATE_ORIGINS.includes(url.origin),
      `FOREIGN_CATALOGUES has ${url.href}, which is not https`,
    );
    refuse(
      url.origin === publicUrl,
      `FOREIGN_CATALOGUES has ${url.href}, which is this service itself`,
    );
  }
  if (part === "custody")
    need("CUSTODY_SOCKET", "the socket on which the service requests signatures");
  refuse(
    hasCustody && isSet("MASTER_KEYS"),
    "MASTER_KEYS is set beside CUSTODY_SOCKET: only the custody process may have master keys",
  );
  refuse(
    hasCustody && isSet("CHANNEL_KEYS"),
    "CHANNEL_KEYS is set beside CUSTODY_SOCKET: only the custody process may have these keys",
  );
  refuse(
    masterKeys.length > 0 && !masterKeys.some(({ kid }) => kid === masterKeyActive),
    `MASTER_KEY_ACTIVE names "${masterKeyActive}", which is not in MASTER_KEYS`,
  );
  if (chargesFees(fees)) need("FEE_ADDRESS", "where fees are paid; a fee is set");
  refuse(
    networks.some(({ usdc }) => usdc.address.toLowerCase() === fees.payTo),
    "FEE_ADDRESS is a token's contract",
  );
  if (isSet("SMTP_URL")) need("MAIL_FROM", "the sender of the e-mails; SMTP_URL is set");
  refuse(
    isSet("MAIL_FROM") && !isSet("SMTP_URL"),
    "MAIL_FROM is set, but SMTP_URL is not, so no e-mail would be sent",
  );
  const isScreening = isSet("SCREENING_FILE") || isSet("SCREENING_URL");
  refuse(
    isSet("SCREENING_FILE") && isSet("SCREENING_URL"),
    "SCREENING_FILE and SCREENING_URL are both set; set only one of them",
  );
  if (isScreening)
    need("SCREENING_FAILS", "open or closed: what happens while addresses cannot be screened");
  refuse(
    isSet("SCREENING_FAILS") && !isScreening,
    "SCREENING_FAILS is set, but neither SCREENING_FILE nor SCREENING_URL is, so nothing would be screened",
  );
  refuse(
    isSet("SCREENING_TOKEN") && !isSet("SCREENING_URL"),
    "SCREENING_TOKEN is set, but SCREENING_URL is not",
  );
  refuse(
    isSet("SCREENING_MAX_AGE") && !isSet("SCREENING_FILE"),
    "SCREENING_MAX_AGE is set, but SCREENING_FILE is not",
  );
  for (const key of ["CELL", "CELLS", "CELL_SECRET"])
    refuse(
      !isSet(key) && ["CELL", "CELLS", "CELL_SECRET"].some(isSet),
      `${key} is missing (CELL, CELLS and CELL_SECRET belong together)`,
    );
  refuse(
    env.CELL !== undefined && isSet("CELLS") && !env.CELLS.some(({ id }) => id === env.CELL),
    `CELL is ${env.CELL}, which is not in CELLS`,
  );
  if (problems.length > 0) {
    refuse(
      !isLocal && !isSet("PURSER_MODE"),
      "PURSER_MODE is not set, so the mode is production: local is the default only if everything is embedded and HOST is this machine",
    );
    throw new ConfigError(problems);
  }

  const isProxy = proxiesOf(env.TRUST_PROXY);
  return {
    mode,
    host: env.HOST,
    port: env.PORT,
    /** The `{base_url}` of clients, without a trailing slash. */
    publicUrl,
    /** Where owners' passkeys sign. Undefined: passkeys cannot be used; in custody, PUBLIC_URL is not set. */
    passkeys:
      isService || isSet("PUBLIC_URL") ? passkeyPlaces(publicUrl, env.PASSKEY_DOMAIN) : undefined,
    dataDir: env.DATA_DIR,
    // Production uses all its cores; on a developer's machine one process is simpler. Custody is always one process.
    workers: env.WORKERS ?? (isLocal || !isService ? 1 : usualWorkers()),
    worker: undefined as string | undefined,
    logLevel: env.LOG_LEVEL,
    metricsToken: env.METRICS_TOKEN,
    /** The person at work, for the audit of operators' changes. */
    operator: env.OPERATOR,
    /** Accounts that may open the operators' page. */
    operators: env.OPERATORS,
    /** What the operators' page shows of the configuration. */
    shown: () => shownSettings(texts),
    databaseUrl: env.DATABASE_DIRECT_URL ?? env.DATABASE_URL,
    databasePooledUrl: env.DATABASE_DIRECT_URL && env.DATABASE_URL,
    databaseReadUrl: env.DATABASE_READ_URL,
    retention: {
      blockedDays: env.RETAIN_DAYS.blocked,
      bytesDays: env.RETAIN_DAYS.bytes,
      facilitatedDays: env.RETAIN_DAYS.facilitated,
      statisticsDays: env.RETAIN_DAYS.statistics,
    },
    networks: networks as [NetworkConfig, ...NetworkConfig[]],
    /** Factories, in lower case, that may deploy a payer's smart wallet at our gas (ERC-6492). */
    erc6492Factories: listed((env.ERC6492_FACTORIES ?? "").toLowerCase()),
    masterKeys,
    masterKeyActive,
    relayerPrivateKeys: env.RELAYER_PRIVATE_KEYS,
    /** Signs claims and refunds of payment channels for merchants. */
    receiverAuthorizerKey: env.RECEIVER_AUTHORIZER_KEY,
    /** They sign vouchers of agents' channels, the first for new ones. */
    channelKeys: env.CHANNEL_KEYS.map((key) => hexToBytes(key)),
    /** Keys of gas-paying accounts (relayers) in a KMS. */
    relayerKmsKeys: env.RELAYER_KMS_KEYS,
    /** The socket of the custody process, which holds the master keys. */
    custodySocket: env.CUSTODY_SOCKET,
    /** Web pages of these origins may call /mcp, besides our own. */
    mcpOrigins: env.MCP_ORIGINS,
    fetchPrivateOrigins: [...env.FETCH_PRIVATE_ORIGINS, ...(isLocal ? [publicUrl] : [])],
    /** Bazaar endpoints of other services, whose entries are probed and listed. */
    foreignCatalogues: env.FOREIGN_CATALOGUES,
    /** The dust floor: smaller payments are not worth the gas. Withdrawals are exempt. */
    minPaymentAtomic: env.MIN_PAYMENT,
    demoPayTo: env.DEMO_PAY_TO,
    fees,
    ...access,
    /** Undefined: addresses are not screened. */
    screening: env.SCREENING_FAILS && {
      file: env.SCREENING_FILE,
      url: env.SCREENING_URL,
      token: env.SCREENING_TOKEN,
      /** Pays while addresses cannot be screened. */
      isOpen: env.SCREENING_FAILS === "open",
      maxAgeSeconds: env.SCREENING_MAX_AGE && env.SCREENING_MAX_AGE * 3_600,
    },
    /** Undefined: this deployment is the only one. */
    cells:
      env.CELL === undefined || env.CELL_SECRET === undefined
        ? undefined
        : { self: env.CELL, cells: env.CELLS, secret: env.CELL_SECRET },
    /** How long a settle or spend waits for finality before it returns "pending". */
    settleWaitMs: env.SETTLE_WAIT_MS,
    rateLimits: env.RATE_LIMITS,
    connectionsPerAddress: env.CONNECTIONS_PER_ADDRESS ?? CONNECTIONS_PER_CALLER,
    /** A trusted proxy is one address: a limit there would close its honest callers' connections. */
    isLimited: (peer: string): boolean =>
      env.CONNECTIONS_PER_ADDRESS !== undefined || !isProxy(peer),
    trustProxy: env.TRUST_PROXY,
    /** Undefined: no e-mail is sent. */
    mail: env.SMTP_URL && env.MAIL_FROM && { ...env.SMTP_URL, from: env.MAIL_FROM },
    /** Signs notifications to browsers. Undefined: none are sent. */
    vapidKeys: env.VAPID_KEYS,
    /** Receives OTLP over HTTP, as JSON. Undefined: no traces, and the SDK is not loaded. */
    tracesUrl: isTracingOff(environment)
      ? undefined
      : env.OTEL_EXPORTER_OTLP_ENDPOINT && `${env.OTEL_EXPORTER_OTLP_ENDPOINT}/v1/traces`,
    /** The SDK reads them itself; they are here to be kept out of the log. */
    tracesHeaders: environment["OTEL_EXPORTER_OTLP_HEADERS"] ?? "",
    ...FIXED,
    timings: { ...TIMINGS },
    /** Only in local mode: helpers that must not exist in production. */
    local: undefined as LocalFacts | undefined,
  };
}

/** Standard keys that a platform may set for all its services. */
const isTracingOff = (environment: Environment): boolean =>
  environment["OTEL_SDK_DISABLED"]?.trim().toLowerCase() === "true" ||
  environment["OTEL_TRACES_EXPORTER"]?.trim() === "none";

/** A configured network: the table's facts, and the operator's settings. */
function networkOf(facts: NetworkFacts, texts: ReadonlyMap<string, string>, problems: string[]) {
  const env = readSettings(CHAIN_SETTINGS, texts, problems, `_${facts.chainId}`);
  const confirmations = env.CONFIRMATIONS ?? facts.confirmations;
  const maxFeeGwei = env.MAX_FEE_GWEI ?? facts.maxFeeGwei;
  const known = parseDecimal(facts.nativePrice);
  return {
    ...facts,
    /** `rpcUrls` is empty only for the local chain, before local mode has started it. */
    ...env.RPC_URL,
    confirmations,
    // A final payment is always reported, so this must not be deeper.
    inclusionDepth: Math.min(env.INCLUSION_DEPTH ?? facts.inclusionDepth, confirmations),
    maxFeeGwei,
    maxTipGwei: Math.min(facts.maxTipGwei, maxFeeGwei),
    sendsApprovals: env.PAYER_APPROVALS,
    /** Per day, in the units of core/gas.ts. */
    gasBudget: env.GAS_BUDGET,
    /** The price of the coin that pays for gas, in atomic USDC. */
    nativePriceAtomic: env.NATIVE_PRICE ?? (known.ok ? known.atomic : 0n),
  };
}

/**
 * Every key of ours that is set, with its text. A secret may come from a file, as orchestrators provide it
 * (`MASTER_KEYS_FILE=/run/secrets/master-keys`): only its owner can read a file, while every child process inherits the
 * environment, and `docker inspect` shows it.
 */
export function readTexts(
  environment: Environment,
  part: Part,
  problems: string[],
): Map<string, string> {
  const texts = new Map<string, string>();
  for (const [key, value = ""] of Object.entries(environment)) {
    if (isEmpty(value)) continue;
    const removed = entryOf(REMOVED, key.replace(CHAIN, ""));
    if (removed !== undefined) problems.push(`${key} is no longer read: ${removed}`);
    // SCREENING_FILE is a key of its own.
    const name = settingOf(key, part) ? key : key.replace(/_FILE$/, "");
    const setting = settingOf(name, part);
    if (setting === undefined || (name !== key && !setting.secret)) continue;
    texts.set(key, value);
    if (isPlaceholder(setting, value)) {
      problems.push(`${key} still has the placeholder of an example: replace it`);
      texts.set(name, value);
      continue;
    }
    if (name === key) continue;
    if (!isEmpty(environment[name] ?? ""))
      problems.push(`${name} and ${key} are both set; set only one of them`);
    const content = contentOf(value);
    if (typeof content === "string") {
      texts.set(name, content);
      if (isPlaceholder(setting, content))
        problems.push(`${key} names a file with the placeholder of an example: replace it`);
    } else problems.push(`${key} names a file that ${content.trouble}`);
  }
  return texts;
}

/** Stands for each secret in ops/examples. */
const PLACEHOLDER = /change-me/;
const isPlaceholder = ({ secret }: Documented, text: string): boolean =>
  secret === true && PLACEHOLDER.test(text);

/** An empty value or list means "not set": compose files and shells leave such values. */
const isEmpty = (text: string): boolean => /^[\s,]*$/.test(text);

const CHAIN = /_[0-9]+$/;

function settingOf(key: string, part: Part): Documented | undefined {
  const name = key.replace(CHAIN, "");
  const { properties } = name === key ? SETTINGS : CHAIN_SETTINGS;
  if (part === "custody" && !CUSTODY_KEYS.includes(name)) return undefined;
  return entryOf(properties as Record<string, Documented>, name);
}

/** Keys that are set and were read by an earlier release, for the operator to see at the start. */
export const keysWithoutEffect = (environment: Environment): string[] =>
  Object.keys(environment).flatMap((key) => {
    const now = entryOf(CONSTANT_NOW, key.replace(CHAIN, ""));
    return now === undefined ? [] : [`${key} is no longer read: ${now}`];
  });

/** An environment may have keys such as "constructor". */
const entryOf = <T>(table: Readonly<Record<string, T>>, name: string): T | undefined =>
  Object.hasOwn(table, name) ? table[name] : undefined;

/** A secret's file has a line or two; a larger one is the wrong file. */
const MAX_FILE_BYTES = 64 * 1024;

/** The content without the final newline that editors and `echo` add. */
function contentOf(path: string): string | { trouble: string } {
  try {
    const bytes = readFileSync(path);
    if (bytes.length > MAX_FILE_BYTES) return { trouble: `is larger than ${MAX_FILE_BYTES} bytes` };
    const text = bytes.toString("utf8").trim();
    return isEmpty(text) ? { trouble: "is empty" } : text;
  } catch (error) {
    return { trouble: `cannot be read (${(error as NodeJS.ErrnoException).code ?? "unknown"})` };
  }
}

/** Decodes each key of the schema. Of an invalid one the valid part, or the default, is left for the other checks. */
function readSettings<Properties extends TProperties>(
  { properties }: TObject<Properties>,
  texts: ReadonlyMap<string, string>,
  problems: string[],
  suffix = "",
): StaticDecode<TObject<Properties>> {
  const values: Record<string, unknown> = {};
  for (const [name, property] of Object.entries(properties)) {
    const setting = property as Documented;
    const key = `${name}${suffix}`;
    const text = texts.get(key);
    if (setting.default !== undefined) values[name] = Value.Decode(setting, setting.default);
    // A placeholder is reported already.
    if (text === undefined || isPlaceholder(setting, text)) continue;
    try {
      values[name] = Value.Decode(setting, text);
    } catch (error) {
      if (!(error instanceof InvalidSetting)) throw error;
      problems.push(...error.reasons.map((reason) => `${key} ${reason}`));
      values[name] = error.value ?? values[name];
    }
  }
  return values as StaticDecode<TObject<Properties>>;
}
