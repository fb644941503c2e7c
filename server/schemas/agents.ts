import { Type, type Static, type TOptional, type TSchema, type TUnsafe } from "typebox";
import {
  AGENT_FIELDS,
  GENERAL_RULES as REASONS,
  PAYEE_FIELDS,
  type AgentWire,
  type Field,
  type PayeeWire,
} from "../../packages/rules/src/fields.ts";
import {
  AddressInput,
  Flag,
  AddressOutput,
  Amount,
  NetworkId,
  Nullable,
  Page,
  Strict,
  Timestamp,
  pageQuery,
  Id,
  Described,
  OneOf,
} from "./common.ts";
import { KeyAuthorization, PolicyAuthorization } from "./orders.ts";

export const MAX_ALLOWLIST = 1_000;

const Name = Type.String({ minLength: 1, maxLength: 80 });
const Label = Type.String({ maxLength: 80 });
const TimeInput = Type.String({ format: "date-time", maxLength: 40, description: "RFC 3339 time" });

const SiteInput = Type.String({
  maxLength: 300,
  description:
    "The only origin at which this payee may be paid, through x402-fetch; empty: anywhere",
  examples: ["https://api.example.com"],
});
/** The schema of a setting's value; null where it may be not set. */
function valueOf({ kind, description }: Field, time: TSchema): TSchema {
  const schema =
    kind.unit === "Atomic" ? Amount : kind.name === "time" ? time : Type.Unsafe({ ...kind.schema });
  const described = description === undefined ? schema : Described(schema, description);
  return kind.unset === null ? Nullable(described) : described;
}

type Optional<T> = { [N in keyof T]: TOptional<TUnsafe<T[N]>> };
type Present<T> = { [N in keyof T]: TUnsafe<T[N]> };

/** Settings in a request: a missing one keeps its value, and null means that it is not set. */
const inRequest = <T>(fields: readonly Field[]): Optional<T> =>
  Object.fromEntries(
    fields.map((field) => [field.name, Type.Optional(valueOf(field, TimeInput))]),
  ) as unknown as Optional<T>;

export const inResponse = <T>(fields: readonly Field[]): Present<T> =>
  Object.fromEntries(
    fields.map((field) => [field.name, valueOf(field, Timestamp)]),
  ) as unknown as Present<T>;

const agentSettings = inRequest<AgentWire>(AGENT_FIELDS);

const payeeFields = {
  address: AddressInput,
  label: Type.Optional(Label),
  site: Type.Optional(SiteInput),
  ...inRequest<PayeeWire>(PAYEE_FIELDS),
};
export const PayeeInput = Strict(payeeFields);
export type PayeeInput = Static<typeof PayeeInput>;
export const AllowlistItem = Type.Union([AddressInput, PayeeInput]);
export const AllowlistInput = Type.Array(AllowlistItem, { maxItems: MAX_ALLOWLIST });
export type AllowlistInput = Static<typeof AllowlistInput>;

export const CreateAgentBody = Strict({
  name: Name,
  ...agentSettings,
  dailyLimit: Amount,
  allowlist: Type.Optional(AllowlistInput),
  network: Type.Optional(NetworkId),
  authorization: PolicyAuthorization,
});
export type CreateAgentBody = Static<typeof CreateAgentBody>;

export const UpdateAgentBody = Strict(
  {
    name: Type.Optional(Name),
    ...agentSettings,
    allowlist: Type.Optional(AllowlistInput),
    authorization: PolicyAuthorization,
    status: Type.Optional(Type.Union([Type.Literal("active"), Type.Literal("paused")])),
  },
  { minProperties: 1, examples: [{ dailyLimit: "25", status: "active" }] },
);
export type UpdateAgentBody = Static<typeof UpdateAgentBody>;

/** One rolling spending window. */
const windowFields = {
  limit: Amount,
  spent: Amount,
  reserved: Amount,
  remaining: Described(Amount, "Remaining amount of this limit; another rule may allow less"),
  nextReleaseAt: Nullable(Timestamp),
};

export const SpendingWindow = Type.Object(windowFields);

export const AllowlistEntry = Type.Object({
  address: AddressOutput,
  label: Type.String(),
  site: Type.String({ description: "An origin, or empty" }),
  readableSite: Nullable(
    Type.String({
      description: "An international site as people write it; `site` is its punycode",
    }),
  ),
  ...inResponse<PayeeWire>(PAYEE_FIELDS),
  createdAt: Timestamp,
  limits: Type.Optional(
    Described(SpendingWindow, "For a payee with a daily limit, when a single agent is read"),
  ),
  denied: Type.Optional(
    Type.Literal(true, {
      description: "The owner never pays it, from any agent; when a single agent is read",
    }),
  ),
});
export const Allowlist = Type.Object({ allowlist: Type.Array(AllowlistEntry) });
export const ReplaceAllowlistBody = Strict({
  allowlist: AllowlistInput,
  authorization: PolicyAuthorization,
});
export const AddAllowlistBody = Strict({
  ...payeeFields,
  replaces: Type.Optional(AddressInput),
  authorization: PolicyAuthorization,
});
export const RemoveAllowedQuery = Strict({ site: Type.Optional(SiteInput) });
export type AddAllowlistBody = Static<typeof AddAllowlistBody>;

/** The rules for a payment to any payee, in the order in which they are checked. */
export type GeneralRule = keyof typeof REASONS;
export const GENERAL_RULES = Object.keys(REASONS) as GeneralRule[];

/** The values of the daily window and of each other window; null where the owner set no limit. */
export const Limits = Type.Object({
  ...windowFields,
  available: Nullable(
    Amount,
    "The largest single payment that the rules allow now on `network`: the smallest of every limit's `remaining`, the limit per payment, and the balance without reserved amounts; 0 if a rule stops every payment. It does not include a payee's own limits. null: unknown while the chain does not respond or the ledger is behind it",
  ),
  boundBy: Nullable(
    Type.Enum(GENERAL_RULES),
    "The rule that refuses more than `available`, with the name used in a denial's `policy.rule`. status: paused or archived; expiry: expired; allowlist: empty; floor: the rest is below the smallest payment of this service; gas: the gas budget is used up. null if `available` is null",
  ),
  weekly: Nullable(SpendingWindow),
  monthly: Nullable(SpendingWindow),
  hourly: Nullable(
    Type.Object(
      {
        limit: Type.Integer(),
        spent: Type.Integer(),
        reserved: Type.Integer(),
        remaining: Type.Integer(),
        nextReleaseAt: Nullable(Timestamp),
      },
      { description: "Payments in the last hour, not money" },
    ),
  ),
  budgets: Type.Array(
    Type.Object({
      id: Id,
      name: Type.String(),
      window: Type.String({ examples: ["24h"] }),
      limit: Amount,
      available: Described(Amount, "What all agents of the budget together may still pay"),
      availableAt: Type.Optional(
        Described(Timestamp, "If nothing is available: when something is again"),
      ),
    }),
    { description: "The limits that this agent shares with others, one for each window" },
  ),
});

export const NetworkBalance = Type.Object({
  network: NetworkId,
  asset: AddressOutput,
  balance: Nullable(Amount, "USDC; null while this chain does not respond"),
});
export type NetworkBalance = Static<typeof NetworkBalance>;

export const AgentStatus = Type.Enum(["active", "paused", "expired", "archived"]);
/** The public part of a key, by which people recognise it. */
export const KeyPrefix = Type.String({ examples: ["purser_3f9a"] });
/** The last four characters of the key; empty for the internal key of an OAuth connection. */
export const KeyEnd = Type.String({ maxLength: 4, examples: ["x7Qk"] });

const agentFields = {
  id: Id,
  name: Type.String(),
  status: AgentStatus,
  expired: Type.Boolean(),
  pausedBy: Nullable(
    Type.String(),
    "`stop` if the owner stopped everything, or the rule that paused it; null if its owner paused it, or nobody",
  ),
  pausedAt: Nullable(Timestamp, "Since when a stop or a rule has paused it"),
  network: NetworkId,
  walletAddress: AddressOutput,
  wallet: AddressOutput,
  balance: Nullable(Amount, "USDC on `network`; null while the chain does not respond"),
  balances: Type.Array(NetworkBalance, {
    description: "On every configured network: the address is the same on all of them",
  }),
  ...inResponse<AgentWire>(AGENT_FIELDS),
  limits: Limits,
  allowlist: Type.Array(AllowlistEntry),
  createdAt: Timestamp,
  updatedAt: Timestamp,
  archivedAt: Nullable(Timestamp),
  lastActivityAt: Nullable(Timestamp),
  blocked24h: Type.Integer({ description: "Payments refused in the last 24 hours" }),
};
export const Agent = Type.Object(agentFields);
export type Agent = Static<typeof Agent>;

const ChainAmount = Nullable(Amount);
const Allowance = Type.Object({
  network: NetworkId,
  spender: AddressOutput,
  amount: Type.Union([Amount, Type.Null()], { description: "null: the chain does not respond" }),
});
export const AgentDetail = Type.Object({
  ...agentFields,
  outstanding: ChainAmount,
  withdrawable: ChainAmount,
  allowances: Type.Array(Allowance, {
    description:
      "The amount that contracts may take from the wallet for signed payments. Raised for them, at most to what the limits allow that day, and revoked when the agent is archived",
  }),
});
export type AgentDetail = Static<typeof AgentDetail>;

export const AgentPage = Page(Agent);
export const AgentListQuery = Strict({
  ...pageQuery,
  archived: Type.Optional(Flag),
  search: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 100,
      pattern: "^[^\\u0000]*$",
      description: "A part of the name, ignoring case, or the whole wallet address",
    }),
  ),
  status: Type.Optional(
    OneOf(["active", "paused"], "Without archived agents; `active` also without expired ones"),
  ),
});

export const ApiKeyInfo = Type.Object({
  id: Id,
  label: Type.String(),
  prefix: KeyPrefix,
  last4: KeyEnd,
  createdAt: Timestamp,
  expiresAt: Nullable(Timestamp),
  revokedAt: Nullable(Timestamp),
  lastUsedAt: Nullable(Timestamp),
  rotatedToId: Nullable(Id),
  status: Type.Enum(["active", "expired", "revoked"]),
});
export type ApiKeyInfo = Static<typeof ApiKeyInfo>;
export const ApiKeyPage = Page(ApiKeyInfo);

const ShownOnce = Type.String({ description: "Shown only once; keep it safe" });
export const CreatedAgent = Type.Object({ agent: AgentDetail, apiKey: ShownOnce, key: ApiKeyInfo });
export const CreatedKey = Type.Object({ key: ApiKeyInfo, apiKey: ShownOnce });
export const RotatedKey = Type.Object({ key: ApiKeyInfo, apiKey: ShownOnce, previous: ApiKeyInfo });

export const RevokedKey = Type.Object({ key: ApiKeyInfo });

export const CreateKeyBody = Strict({
  label: Type.Optional(Label),
  expiresAt: Type.Optional(Nullable(TimeInput)),
  authorization: KeyAuthorization,
});
const MAX_GRACE_SECONDS = 7 * 24 * 3600;
export const RotateKeyBody = Strict({
  authorization: KeyAuthorization,
  graceSeconds: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: MAX_GRACE_SECONDS,
      default: 0,
      description: "How long the old key still works; 0 ends it at once",
    }),
  ),
});
export const KeyParams = Strict({
  id: Type.String({ minLength: 1, maxLength: 64 }),
  keyId: Type.String({ minLength: 1, maxLength: 64 }),
});
export const AllowlistParams = Strict({
  id: Type.String({ minLength: 1, maxLength: 64 }),
  address: AddressInput,
});
