/**
 * Every environment key: its form, default, transform, meaning, and who would change it. server/config.ts reads the
 * environment by this table, and `npm run derive` writes docs/reference/configuration.md from it.
 */
import { Type } from "typebox";
import { isLoopbackHost, readTrust } from "./client-address.ts";
import { databaseReadUrl, databaseUrl } from "./database-settings.ts";
import { CELL_ID, readCells } from "./cells.ts";
import { feeAddress, perMille } from "./fees.ts";
import { readGasBudget } from "./gas.ts";
import { mailFrom, smtpUrl } from "./mail-settings.ts";
import { readKmsKeys, readMasterKeys, readPrivateKey, readPrivateKeys } from "./master-keys.ts";
import { readAccounts } from "./merchant-settings.ts";
import { parsePayable } from "./money.ts";
import { LOCAL_CHAIN_ID, readEndpoints, readNetworks } from "./network-settings.ts";
import { readRateLimits } from "./rate-limits.ts";
import {
  asWritten,
  formed,
  listed,
  matching,
  oneOf,
  originOf,
  readChanges,
  setting,
  trueOrFalse,
  usdc,
  wholeNumber,
} from "./setting.ts";
import { readVapidKeys } from "./push-settings.ts";
import { MAX_WORKERS } from "./worker-settings.ts";

const SERVICE = {
  PURSER_MODE: setting(oneOf("local", "production"), {
    meaning:
      "Unset, the service is local while everything is embedded and `HOST` is loopback, else it is production. `NODE_ENV` decides nothing.",
    who: "each deployment, so that a forgotten key stops the start.",
  }),
  // Fastify would open a second socket for the other address of `localhost`, but connections are counted per socket.
  HOST: setting((host) => (host === "localhost" ? "127.0.0.1" : host), {
    default: "127.0.0.1",
    meaning: "The address to listen on.",
    who: "an operator of a container, or of a machine whose proxy is elsewhere.",
  }),
  PORT: setting(wholeNumber(0, 65_535), {
    default: "3000",
    meaning: "The port to listen on.",
    who: "a developer or operator whose port 3000 is in use.",
  }),
  PUBLIC_URL: setting(formed("an origin such as https://purser.example.com", originOf), {
    meaning: "The base URL that clients see. https in production, unless it is loopback.",
    who: "each deployment.",
  }),
  PASSKEY_DOMAIN: setting(
    matching(/^[a-z0-9-]+(\.[a-z0-9-]+)*$/, "a host name such as purser.example.com"),
    {
      usually: "the host of `PUBLIC_URL`",
      meaning:
        "The domain that owners' passkeys belong to. See [when the address of the service changes](../how-to/use-a-passkey.md).",
      who: "an operator whose `PUBLIC_URL` moves to another domain, so that passkeys made before keep working; one with several cells, so that they work in all of them.",
    },
  ),
  DATA_DIR: setting(asWritten, {
    default: ".data",
    meaning: "Where embedded state lives.",
    who: "a developer with several local worlds.",
  }),
  WORKERS: setting(wholeNumber(1, MAX_WORKERS), {
    usually: "the cores, as far as memory allows; locally 1",
    meaning:
      "Processes of this command, each a whole replica. Above 1 one more starts them. See [all cores](../operations/all-cores.md).",
    who: "an operator who shares the machine or the database's connections with others.",
  }),
  LOG_LEVEL: setting(oneOf("fatal", "error", "warn", "info", "debug", "trace", "silent"), {
    default: "info",
    meaning: "A pino level.",
    who: "an operator who looks for a fault, or pays for each log line.",
  }),
  METRICS_TOKEN: setting(matching(/^.{16,}$/s, "at least 16 characters long"), {
    secret: true,
    meaning: "Opens `/metrics` to its bearer. In production `/metrics` is closed without it.",
    who: "each deployment with Prometheus.",
  }),
  OPERATOR: setting(matching(/^[ -~]{1,100}$/, "1 to 100 printable ASCII characters"), {
    meaning:
      "Who operates. It is recorded with what a command or a changed configuration does, beside the system's user and host.",
    who: "an operator who shares a system user with others.",
  }),
  OPERATORS: setting(readAccounts, {
    default: "",
    meaning:
      "Accounts that may open the [operators' page](../operations/operators-page.md), comma separated. A contract account is `eip155:<chain id>:0x...`. Unset, neither the page nor its routes exist.",
    who: "an operator who wants the page.",
  }),
};

/** Days that growing tables are kept (infra/retention.ts). */
const DAYS_KEPT = { blocked: 90, bytes: 30, facilitated: 90, statistics: 400 };

function readDaysKept(text: string): typeof DAYS_KEPT {
  // At least one day: answers for repeated requests must not be deleted on the same day.
  const read = (days: string) => (/^[1-9][0-9]{0,4}$/.test(days) ? Number(days) : undefined);
  return readChanges(text, DAYS_KEPT, { what: "days (1 to 99999)", read });
}

const DATABASE = {
  DATABASE_URL: setting(databaseUrl, {
    secret: true,
    usually: "the embedded Postgres",
    meaning:
      "An external Postgres. Several hosts (`postgres://user:word@one,other/name`) are a primary and its standbys.",
    who: "each deployment.",
  }),
  DATABASE_DIRECT_URL: setting(databaseUrl, {
    secret: true,
    meaning:
      "Postgres itself, where `DATABASE_URL` leads to a [transaction pooler](../operations/pooler.md).",
    who: "an operator with PgBouncer or the like.",
  }),
  DATABASE_READ_URL: setting(databaseReadUrl, {
    secret: true,
    meaning:
      "A streaming standby of `DATABASE_URL`, for lists, sums and exports. See [read replica](../operations/read-replica.md).",
    who: "an operator whose primary is busy with payments.",
  }),
  RETAIN_DAYS: setting(readDaysKept, {
    default: "",
    usually: JSON.stringify(DAYS_KEPT).replaceAll(/[{}"]/g, "").replaceAll(":", "="),
    meaning:
      "`name=days,...`: how long refusals (`blocked`), signed bytes of final transactions (`bytes`), settlements of third parties (`facilitated`) and hourly counts (`statistics`) are kept.",
    who: "an operator with another law, or with a small disk.",
  }),
};

const CHAINS = {
  NETWORKS: setting(readNetworks, {
    default: `eip155:${LOCAL_CHAIN_ID}`,
    meaning: "CAIP-2 ids, comma separated. The first is the agents' default.",
    who: "each deployment.",
  }),
  ERC6492_FACTORIES: setting(
    matching(/^\s*0x[0-9a-f]{40}(\s*,\s*0x[0-9a-f]{40})*\s*$/i, "0x addresses, comma separated"),
    {
      meaning: "Factories whose wallets may settle before they are deployed.",
      who: "a facilitator whose payers have new smart wallets.",
    },
  ),
};

/** Once for each network, as `<key>_<chainId>`. */
const EACH_CHAIN = {
  RPC_URL: setting(readEndpoints, {
    default: "",
    secret: true,
    meaning:
      "RPC endpoints, comma separated, tried in order. `wss://` endpoints beside them announce new blocks.",
    who: "each deployment.",
  }),
  CONFIRMATIONS: setting(wholeNumber(1, 999), {
    usually: "the network table's",
    meaning: "Blocks until a transaction is final.",
    who: "an operator of a chain that loses more blocks than the table expects.",
  }),
  INCLUSION_DEPTH: setting(wholeNumber(1, 999), {
    usually: "the network table's",
    meaning: "Blocks until success is returned. Never more than the confirmations.",
    who: "a facilitator whose sellers deliver at once what they cannot take back.",
  }),
  MAX_FEE_GWEI: setting(
    formed("a number of gwei above 0, with at most 9 decimals", (text) =>
      /^(0|[1-9][0-9]{0,6})(\.[0-9]{1,9})?$/.test(text) ? Number(text) || undefined : undefined,
    ),
    {
      usually: "the network table's",
      meaning:
        "The most that a unit of gas may cost, tip included. While it costs more, nothing is sent.",
      who: "an operator who would rather wait than pay more, or the reverse.",
    },
  ),
  // From the operator and not from an oracle: a price that others can move would let them change our gas budgets.
  NATIVE_PRICE: setting(
    formed("USDC for one coin, such as 3000", (text) => {
      const price = parsePayable(text);
      return price.ok ? price.atomic : undefined;
    }),
    {
      usually: "1 on Arc and on test networks",
      meaning: "USDC for one coin that pays gas. Required on other networks.",
      who: "each deployment on such a network, again when the price moves.",
    },
  ),
  GAS_BUDGET: setting(readGasBudget, {
    default: "",
    usually: "the table in `server/core/gas.ts`",
    meaning: "`name=USDC per day,...`: who may cause how much gas.",
    who: "an operator with more traffic, or with more expensive gas.",
  }),
  PAYER_APPROVALS: setting(trueOrFalse, {
    default: "false",
    meaning:
      "`true`: a payer's own approval of Permit2 is sent before its payment, at its own gas.",
    who: "a facilitator whose payers use Permit2 for the first time.",
  }),
};

const KEYS = {
  MASTER_KEYS: setting(readMasterKeys, {
    default: "",
    secret: true,
    meaning:
      "`kid:base64 of 32 bytes,...` or `kid:kms:<key id or ARN>`. They wrap the wallet keys of agents. See [keys](../operations/keys.md).",
    who: "each deployment, and each rotation.",
  }),
  MASTER_KEY_ACTIVE: setting(asWritten, {
    usually: "the first",
    meaning: "The id of the key that wraps new wallets.",
    who: "each rotation.",
  }),
  RELAYER_PRIVATE_KEYS: setting(readPrivateKeys, {
    default: "",
    secret: true,
    meaning: "The accounts that pay gas, comma separated. Several are parallel lanes.",
    who: "each deployment without a KMS.",
  }),
  RELAYER_KMS_KEYS: setting(readKmsKeys, {
    default: "",
    meaning:
      "Accounts that pay gas whose keys are in AWS KMS (`ECC_SECG_P256K1`), by id or ARN; beside or instead of `RELAYER_PRIVATE_KEYS`.",
    who: "an operator with a KMS.",
  }),
  RECEIVER_AUTHORIZER_KEY: setting(
    formed("0x and 64 hexadecimal digits, a valid private key", readPrivateKey),
    {
      secret: true,
      meaning:
        "The key that signs claims and refunds of payment channels for merchants in `MERCHANTS`. Channels name its address for good: keep it ([keys](../operations/keys.md)).",
      who: "an operator whose merchants leave claims to this facilitator.",
    },
  ),
  CHANNEL_KEYS: setting(readPrivateKeys, {
    default: "",
    secret: true,
    meaning:
      "The accounts that sign the vouchers of agents' payment channels, and pay the gas of withdrawals from them; comma separated, the first for new channels. Without one, agents use no channels. Keep a key while a channel names it ([keys](../operations/keys.md)).",
    who: "an operator whose agents pay through channels.",
  }),
  CUSTODY_SOCKET: setting(
    formed("an absolute path of at most 100 bytes, which is all that some systems allow", (path) =>
      /^\/[^\0]+$/.test(path) && Buffer.byteLength(path) <= 100 ? path : undefined,
    ),
    {
      meaning:
        "The socket of `npm run custody`, which then has `MASTER_KEYS` instead of the service. See [custody process](../operations/custody-process.md).",
      who: "an operator who keeps keys out of the process that serves requests.",
    },
  ),
};

/** The token must not cross a network in the clear. */
function readScreeningUrl(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || url.username + url.password !== "") return undefined;
  const isSafe =
    url.protocol === "https:" || (url.protocol === "http:" && isLoopbackHost(url.hostname));
  return isSafe ? url.href : undefined;
}

const origins = formed("origins such as https://purser.example.com, comma separated", (text) => {
  const found = listed(text).map(originOf);
  return found.every((origin) => origin !== undefined) ? found : undefined;
});

const MOST_CATALOGUES = 10;

/** Plain http is for `FETCH_PRIVATE_ORIGINS`, which server/config.ts checks. */
function readCatalogues(text: string): string[] | undefined {
  const urls = listed(text).map((entry) => (URL.canParse(entry) ? new URL(entry) : undefined));
  const isValid = urls.every(
    (url) => url && /^https?:$/.test(url.protocol) && url.username + url.password + url.hash === "",
  );
  const found = [...new Set(urls.map((url) => url?.href ?? ""))];
  return isValid && found.length <= MOST_CATALOGUES ? found : undefined;
}

const PAYMENTS = {
  FETCH_PRIVATE_ORIGINS: setting(origins, {
    default: "",
    meaning: "Private origins that agents' fetches, webhooks and the validator may reach.",
    who: "an operator whose agents pay services of the same private network.",
  }),
  FOREIGN_CATALOGUES: setting(
    formed("https URLs without a user, at most 10, comma separated", readCatalogues),
    {
      default: "",
      meaning:
        "Catalogues of other facilitators (Bazaar discovery endpoints), whose entries are listed once a probe found them alive ([other catalogues](../operations/other-catalogues.md)).",
      who: "an operator whose agents look for APIs that nobody listed here.",
    },
  ),
  MCP_ORIGINS: setting(origins, {
    default: "",
    meaning:
      "Origins of web pages that may call `/mcp` from a browser. Programs send no `Origin` and need none.",
    who: "an operator whose users connect from an MCP client that is a web page.",
  }),
  MIN_PAYMENT: setting(usdc, {
    default: "0.0001",
    meaning:
      "USDC. Smaller payments are refused, because their gas costs more. Withdrawals may be any amount.",
    who: "an operator of a chain with more expensive gas than Arc.",
  }),
  DEMO_PAY_TO: setting(matching<`0x${string}`>(/^0x[0-9a-fA-F]{40}$/, "a 0x address"), {
    meaning: "The address that the demo endpoint is paid at.",
    who: "an operator who shows the demo.",
  }),
};

const FACILITATOR = {
  FACILITATOR_API_KEYS: setting(listed, {
    default: "",
    secret: true,
    meaning: "If set, verify and settle need `Authorization: Bearer`.",
    who: "a facilitator that knows its sellers.",
  }),
  FACILITATOR_OPEN: setting(trueOrFalse, {
    default: "false",
    meaning:
      "`true`: third parties may settle, with or without such keys, from the gas budget that is set aside for them.",
    who: "a public facilitator.",
  }),
  MERCHANTS: setting(readAccounts, {
    default: "",
    meaning:
      "Accounts whose own keys settle from the merchants' gas budget, comma separated. A contract account is `eip155:<chain id>:0x...`.",
    who: "a facilitator whose sellers make their own keys.",
  }),
  FEE_PER_SETTLEMENT: setting(usdc, {
    default: "0",
    meaning:
      "USDC that a payee owes for each settlement that a third party requests. At most a tenth of the payment. See [charge fees](../operations/fees.md).",
    who: "an operator who runs a facilitator for others.",
  }),
  FEE_PER_MILLE: setting(perMille, {
    default: "0",
    meaning:
      "Parts per thousand of the amount that a payee owes for each such settlement, beside `FEE_PER_SETTLEMENT`. Rounded down to a millionth of a USDC.",
    who: "an operator who runs a facilitator for others.",
  }),
  FEE_ADDRESS: setting(feeAddress, {
    meaning:
      "Where fees are paid, on every network. Required with a fee. Keep it as long as fees are owed.",
    who: "an operator who charges fees.",
  }),
  FEE_CREDIT: setting(usdc, {
    default: "5",
    meaning: "USDC that a payee may owe on a network before its next payments are refused.",
    who: "an operator who charges fees and grants more or less credit.",
  }),
  SETTLE_WAIT_MS: setting(wholeNumber(0, 25_000), {
    default: "20000",
    meaning:
      "The longest wait for a block before a settle answers `settlement_pending`. Stock clients give up after 30 s.",
    who: "an operator whose proxy or clients give up sooner.",
  }),
};

const REQUESTS = {
  RATE_LIMITS: setting(readRateLimits, {
    default: "",
    usually: "the table in `server/core/rate-limits.ts`",
    meaning: "`name=requests per minute,...`",
    who: "an operator with more clients, or with unwanted ones.",
  }),
  CONNECTIONS_PER_ADDRESS: setting(wholeNumber(1, 99_999), {
    usually: "1000; no limit for proxies in `TRUST_PROXY`",
    meaning:
      "Connections that one address may hold. A proxy in front is one address, so its own limits apply; a number in `TRUST_PROXY` takes every address for a proxy. More are closed, counted in `purser_connections_cut_total`, and logged once a minute.",
    who: "an operator with busy clients behind one address, or whose port callers reach beside the proxy.",
  }),
  TRUST_PROXY: setting(readTrust, {
    default: "0",
    meaning:
      "How many proxies are in front, or their addresses and networks. Trusting everybody is refused.",
    who: "an operator with a proxy in front.",
  }),
};

const REPORTS = {
  SMTP_URL: setting(smtpUrl, {
    secret: true,
    meaning: "The mail server, always with TLS except on this machine. Unset, no e-mail is sent.",
    who: "an operator who sends e-mail.",
  }),
  MAIL_FROM: setting(mailFrom, {
    meaning: "The sender of e-mails.",
    who: "an operator who sends e-mail.",
  }),
  VAPID_KEYS: setting(
    formed("public:private, as `npx web-push generate-vapid-keys` prints them", readVapidKeys),
    {
      secret: true,
      usually: "none; locally generated",
      meaning:
        "The key pair that signs notifications to browsers and phones (web push). Unset, none are sent. Keep it: with another pair every device must be switched on again.",
      who: "each deployment whose owners want notifications on their phones.",
    },
  ),
  OTEL_EXPORTER_OTLP_ENDPOINT: setting(
    formed("an http(s) URL", (text) =>
      /^https?:\/\/./.test(text) && URL.canParse(text) ? text.replace(/\/$/, "") : undefined,
    ),
    {
      meaning:
        "Where traces go, as OTLP over HTTP. Unset, or with `OTEL_SDK_DISABLED=true` or `OTEL_TRACES_EXPORTER=none`, nothing of it is loaded. The OpenTelemetry SDK reads all other `OTEL_*` keys itself. See [traces](../operations/traces.md).",
      who: "an operator with a collector.",
    },
  ),
};

const SCREENING = {
  SCREENING_FILE: setting(matching(/^\/[^\0]+$/, "an absolute path"), {
    meaning:
      "A file of addresses that are not paid and do not pay, one a line. See [screening](../how-to/screen-addresses.md).",
    who: "an operator who must screen addresses and has a list.",
  }),
  SCREENING_URL: setting(
    formed("an https URL without a password, or an http URL of this machine", readScreeningUrl),
    {
      meaning: "A service that says which addresses are blocked, in place of `SCREENING_FILE`.",
      who: "an operator who must screen addresses and has a provider.",
    },
  ),
  SCREENING_TOKEN: setting(matching(/^[!-~]{8,4096}$/, "8 to 4096 printable characters"), {
    secret: true,
    meaning: "The bearer token for `SCREENING_URL`.",
    who: "an operator whose provider requires one.",
  }),
  SCREENING_FAILS: setting(oneOf("open", "closed"), {
    meaning:
      "What happens while addresses cannot be screened: `open` pays and counts it, `closed` refuses for the moment. Required with either of the two.",
    who: "each operator who screens.",
  }),
  SCREENING_MAX_AGE: setting(wholeNumber(1, 8_760), {
    meaning: "Hours. An older `SCREENING_FILE` counts as failed. Unset, its age is only reported.",
    who: "an operator whose list is replaced regularly.",
  }),
};

const CELLS = {
  CELL: setting(matching(CELL_ID, "one to six small letters and a number, such as c1"), {
    meaning: "The name of this cell. See [cells](../operations/cells.md).",
    who: "an operator with several cells: each has its own.",
  }),
  CELLS: setting(readCells, {
    default: "",
    meaning:
      "All cells, `c1=http://10.0.0.1:3000,c2=http://10.0.0.2:3000`: where they reach each other. A later one takes only payments that end after a second that lies ahead (`c3=http://10.0.0.3:3000@1790000000`).",
    who: "an operator with several cells: the same text in each.",
  }),
  CELL_SECRET: setting(matching(/^[!-~]{32,}$/, "at least 32 printable characters"), {
    secret: true,
    meaning: "Proves to a cell that another one sent the request.",
    who: "an operator with several cells: the same in each.",
  }),
};

/** As docs/reference/configuration.md has them. */
export const SECTIONS = {
  "The service": SERVICE,
  Database: DATABASE,
  Chains: CHAINS,
  "Each chain": EACH_CHAIN,
  Keys: KEYS,
  "Agents and fetches": PAYMENTS,
  Facilitator: FACILITATOR,
  Screening: SCREENING,
  Cells: CELLS,
  "Limits on requests": REQUESTS,
  "E-mail, push and traces": REPORTS,
};

export const SETTINGS = Type.Object({
  ...SERVICE,
  ...DATABASE,
  ...CHAINS,
  ...KEYS,
  ...PAYMENTS,
  ...FACILITATOR,
  ...SCREENING,
  ...CELLS,
  ...REQUESTS,
  ...REPORTS,
});
export const CHAIN_SETTINGS = Type.Object(EACH_CHAIN);

/** What the custody process reads. */
export const CUSTODY_KEYS: readonly string[] = [
  "PURSER_MODE",
  "HOST",
  "PUBLIC_URL",
  "PASSKEY_DOMAIN",
  "LOG_LEVEL",
  "OPERATOR",
  "DATABASE_URL",
  "DATABASE_DIRECT_URL",
  "NETWORKS",
  "RPC_URL",
  "MASTER_KEYS",
  "MASTER_KEY_ACTIVE",
  "CHANNEL_KEYS",
  "CUSTODY_SOCKET",
];

/**
 * Keys of earlier releases, with what to do instead. One that is still set stops the start: ignoring it would delete
 * rows that an operator keeps, use a KMS's data key longer, pay a higher tip, or use another batcher.
 */
export const REMOVED: Readonly<Record<string, string>> = {
  RETAIN_BLOCKED_DAYS: "set RETAIN_DAYS=blocked=<days>",
  RETAIN_BYTES_DAYS: "set RETAIN_DAYS=bytes=<days>",
  RETAIN_FACILITATED_DAYS: "set RETAIN_DAYS=facilitated=<days>",
  RETAIN_STATISTICS_DAYS: "set RETAIN_DAYS=statistics=<days>",
  KMS_CACHE_SECONDS: "a data key that the KMS opened may be used for 60 seconds",
  MAX_TIP_GWEI: "set MAX_FEE_GWEI_<chainId>, which also limits the tip",
  BATCHER: "the batcher is used where its code is at its usual address",
};

/**
 * Keys of earlier releases that are constants now. One that is still set is a warning at the start: few operators set
 * them, and the constant is the former default, which bounds what the key bounded.
 */
export const CONSTANT_NOW: Readonly<Record<string, string>> = {
  GAS_CAP_PER_ITEM: "one payment may use 300000 units of gas",
  FORCED_CANCELS_PER_DAY: "one payee may cause 5 cancellations for one owner in a day",
  FETCH_MAX_BYTES: "x402-fetch returns up to 5242880 bytes",
  REQUEST_TIMEOUT_MS: "a request may take 30 seconds to arrive",
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT:
    "set OTEL_EXPORTER_OTLP_ENDPOINT, to which /v1/traces is added",
};
