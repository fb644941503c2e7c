/**
 * The documentation of every environment key that the service reads. `npm run derive` writes
 * docs/reference/configuration.md from it; test/unit/configuration-page.test.ts compares it with the keys that
 * server/config.ts really reads.
 */
export interface ConfigurationKey {
  /** If absent, the key is unset by default. */
  default?: string;
  meaning: string;
  /** The end of "must be ...", for the page and for the list of problems at the start. */
  form?: string;
}

export const CONFIGURATION: Record<string, Record<string, ConfigurationKey>> = {
  "The service": {
    PURSER_MODE: {
      form: "local or production",
      meaning:
        "Unset, the service is local while everything is embedded and `HOST` is loopback, else it is production. `NODE_ENV` decides nothing.",
    },
    HOST: {
      default: "127.0.0.1",
      meaning: "The address to listen on.",
    },
    PORT: {
      form: "a whole number up to 65535",
      default: "3000",
      meaning: "The port to listen on.",
    },
    PUBLIC_URL: {
      meaning: "The base URL that clients see. https in production, unless it is loopback.",
    },
    DATA_DIR: { default: ".data", meaning: "Where embedded state lives." },
    WORKERS: {
      default: "the cores, as far as memory allows; locally 1",
      meaning:
        "Processes of this command, each a whole replica. Above 1 one more starts them. See [all cores](../operations/all-cores.md).",
    },
    LOG_LEVEL: {
      form: "one of fatal, error, warn, info, debug, trace, silent",
      default: "info",
      meaning: "A pino level.",
    },
    METRICS_TOKEN: {
      form: "at least 16 characters long",
      meaning: "Opens `/metrics` to its bearer. In production `/metrics` is closed without it.",
    },
    OPERATOR: {
      form: "1 to 100 printable ASCII characters",
      meaning:
        "Who operates. It is recorded with what a command or a changed configuration does, beside the system's user and host.",
    },
  },
  Database: {
    DATABASE_URL: {
      form: "a postgres:// URL",
      default: "the embedded Postgres",
      meaning:
        "An external Postgres. Several hosts (`postgres://user:word@one,other/name`) are a primary and its standbys.",
    },
    DATABASE_DIRECT_URL: {
      form: "a postgres:// URL",
      meaning: "Postgres itself, where `DATABASE_URL` leads to a transaction pooler.",
    },
    RETAIN_BLOCKED_DAYS: {
      form: "a whole number of days from 1 to 99999",
      default: "90",
      meaning: "Days that refusals are kept.",
    },
    RETAIN_BYTES_DAYS: {
      form: "a whole number of days from 1 to 99999",
      default: "30",
      meaning: "Days that signed bytes of final transactions are kept.",
    },
    RETAIN_FACILITATED_DAYS: {
      form: "a whole number of days from 1 to 99999",
      default: "90",
      meaning: "Days that settlements of third parties are kept.",
    },
    RETAIN_STATISTICS_DAYS: {
      form: "a whole number of days from 1 to 99999",
      default: "400",
      meaning: "Days that hourly counts are kept.",
    },
  },
  Chains: {
    NETWORKS: {
      default: "eip155:5042002",
      meaning: "CAIP-2 ids, comma separated. The first is the agents' default.",
    },
    "RPC_URL_<chainId>": {
      meaning:
        "RPC endpoints, comma separated, tried in order. `wss://` endpoints beside them announce new blocks.",
    },
    "CONFIRMATIONS_<chainId>": {
      default: "the network table's",
      meaning: "Blocks until a transaction is final.",
    },
    "INCLUSION_DEPTH_<chainId>": {
      default: "the network table's",
      meaning: "Blocks until success is returned. Never more than the confirmations.",
    },
    "MAX_FEE_GWEI_<chainId>": {
      default: "the network table's",
      meaning: "The most that a unit of gas may cost. While gas costs more, nothing is sent.",
    },
    "MAX_TIP_GWEI_<chainId>": {
      default: "the network table's",
      meaning: "The most that a unit of gas may cost as tip.",
    },
    "BATCHER_<chainId>": {
      meaning:
        "Where [our batcher](../decisions/0033-a-batcher-of-our-own.md) is, if not at its usual address. `none`: always Multicall3.",
    },
    "NATIVE_PRICE_<chainId>": {
      default: "1 on Arc and on test networks",
      meaning: "USDC for one coin that pays gas. Required on other networks.",
    },
    ERC6492_FACTORIES: {
      form: "0x addresses, comma separated",
      meaning: "Factories whose wallets may settle before they are deployed.",
    },
  },
  Keys: {
    MASTER_KEYS: {
      meaning:
        "`kid:base64 of 32 bytes,...` or `kid:kms:<key id or ARN>`. They wrap the wallet keys of agents. See [keys](../operations/keys.md).",
    },
    MASTER_KEY_ACTIVE: {
      default: "the first",
      meaning: "The id of the key that wraps new wallets.",
    },
    RELAYER_PRIVATE_KEYS: {
      meaning: "The accounts that pay gas, comma separated. Several are parallel lanes.",
    },
    RELAYER_KMS_KEYS: {
      meaning:
        "Accounts that pay gas whose keys are in AWS KMS (`ECC_SECG_P256K1`), by id or ARN; beside or instead of `RELAYER_PRIVATE_KEYS`.",
    },
    KMS_CACHE_SECONDS: {
      form: "a whole number of seconds up to 999",
      default: "60",
      meaning:
        "How long a data key that the KMS opened may be used. 0: the KMS is called for each signature.",
    },
    CUSTODY_SOCKET: {
      meaning:
        "The socket of `npm run custody`, which then has `MASTER_KEYS` instead of the service. See [custody process](../operations/custody-process.md).",
    },
  },
  "Agents and fetches": {
    FETCH_MAX_BYTES: {
      form: "a whole number of bytes from 10000 to 67108864",
      default: "5242880, at most 67108864",
      meaning:
        "How much of a target's answer x402-fetch returns, in bytes. More comes as `truncated: true`.",
    },
    FETCH_PRIVATE_ORIGINS: { meaning: "Private origins that x402-fetch may reach." },
    MIN_PAYMENT: {
      form: "an amount of USDC with at most 6 decimals, such as 0.0001",
      default: "0.0001",
      meaning:
        "USDC. Smaller payments are refused, because their gas costs more. Withdrawals may be any amount.",
    },
    FORCED_CANCELS_PER_DAY: {
      form: "a whole number up to 999999",
      default: "5",
      meaning:
        "Cancellations that one payee may cause for one owner in a day. After that, authorizations are left to expire.",
    },
    DEMO_PAY_TO: {
      form: "a 0x address",
      meaning: "The address that the demo endpoint is paid at.",
    },
  },
  Facilitator: {
    FACILITATOR_API_KEYS: { meaning: "If set, verify and settle need `Authorization: Bearer`." },
    FACILITATOR_OPEN: {
      form: "true or false",
      default: "false",
      meaning:
        "`true`: third parties may settle, with or without such keys, from the gas budget that is set aside for them.",
    },
    MERCHANTS: {
      meaning:
        "Accounts whose own keys settle from the merchants' gas budget, comma separated. A contract account is `eip155:<chain id>:0x...`.",
    },
    "PAYER_APPROVALS_<chainId>": {
      default: "false",
      meaning:
        "`true`: a payer's own approval of Permit2 is sent before its payment, at its own gas.",
    },
    SETTLE_WAIT_MS: {
      form: "a whole number of milliseconds up to 25000",
      default: "20000",
      meaning: "The longest wait for a block before a settle answers `settlement_pending`.",
    },
    "GAS_BUDGET_<chainId>": {
      default: "the table in `server/core/gas.ts`",
      meaning: "`name=USDC per day,...`: who may cause how much gas.",
    },
    GAS_CAP_PER_ITEM: {
      form: "a whole number of gas units from 10000 to 999999999",
      default: "300000",
      meaning: "Gas units that one payment may use.",
    },
  },
  "Limits on requests": {
    RATE_LIMITS: {
      default: "the table in `server/core/rate-limits.ts`",
      meaning: "`name=requests per minute,...`",
    },
    REQUEST_TIMEOUT_MS: {
      form: "a whole number of milliseconds from 100 to 999999",
      default: "30000",
      meaning: "How long a request may take to arrive, and a reader may take nothing.",
    },
    CONNECTIONS_PER_ADDRESS: {
      form: "a whole number from 1 to 99999",
      default: "1000",
      meaning: "Connections that one address may hold. A proxy in front is one address.",
    },
    TRUST_PROXY: {
      meaning:
        "How many proxies are in front, or their addresses and networks. Trusting everybody is refused.",
    },
  },
  "E-mail": {
    SMTP_URL: {
      meaning:
        "`smtp(s)://[user:password@]host[:port]`, always with TLS except on this machine. Unset, no e-mail is sent.",
    },
    MAIL_FROM: { meaning: "The sender of e-mails." },
  },
  Traces: {
    OTEL_EXPORTER_OTLP_ENDPOINT: {
      meaning:
        "Where traces go, as OTLP over HTTP. Unset, nothing of it is loaded. See [traces](../operations/traces.md).",
    },
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: { meaning: "The same, for traces alone." },
    OTEL_EXPORTER_OTLP_HEADERS: { meaning: "Headers for the collector." },
    OTEL_EXPORTER_OTLP_PROTOCOL: { default: "http/json", meaning: "`http/json` is the only one." },
    OTEL_SERVICE_NAME: { default: "purser", meaning: "Our name in traces." },
    OTEL_TRACES_EXPORTER: {
      meaning: "`none` turns traces off. `OTEL_TRACES_SAMPLER` and `OTEL_BSP_*` are the SDK's own.",
    },
    OTEL_SDK_DISABLED: { meaning: "`true` turns traces off." },
  },
  "Secrets from files": {
    DATABASE_URL_FILE: {
      meaning: "The file that holds `DATABASE_URL`. In the same way: `RPC_URL_<chainId>_FILE`.",
    },
    METRICS_TOKEN_FILE: { meaning: "The file that holds `METRICS_TOKEN`." },
    SMTP_URL_FILE: { meaning: "The file that holds `SMTP_URL`." },
    MASTER_KEYS_FILE: { meaning: "The file that holds `MASTER_KEYS`." },
    RELAYER_PRIVATE_KEYS_FILE: { meaning: "The file that holds `RELAYER_PRIVATE_KEYS`." },
    FACILITATOR_API_KEYS_FILE: { meaning: "The file that holds `FACILITATOR_API_KEYS`." },
  },
};

const FORMS = new Map(
  Object.values(CONFIGURATION)
    .flatMap((section) => Object.entries(section))
    .map(([key, { form }]) => [key, form]),
);

/** The expected form of this key's value. */
export const formOf = (key: string): string | undefined => FORMS.get(key);
