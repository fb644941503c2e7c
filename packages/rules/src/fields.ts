/**
 * The settings of rules, each declared once. The signed document, custody's comparison with the columns, the schemas of
 * requests and responses, the audit, the text of an order and the form follow from these tables.
 *
 * The order is that of the signed document and must not change. A new setting is added at the end, with the next
 * version in `since`: then the documents that were signed before stay valid, and stand for "not set".
 */
import {
  AMOUNT,
  choice,
  COUNT,
  DAYS,
  DURATION,
  FACTOR,
  FAILURES,
  HELD,
  HOURS,
  OPTIONAL_AMOUNT,
  OPTIONAL_HELD,
  TIME,
  type Kind,
  type Value,
  type Wire,
} from "./kinds.ts";

interface Declaration {
  kind: Kind;
  /** The version of the signed document that introduced it. */
  since: number;
  column: string;
  label: string;
  help: string;
  /** For clients, in the schemas, and in docs/reference/rules.md. */
  description?: string;
  required?: true;
  /** For a limit over time: its window. `limits` in responses shows it. */
  window?: string;
  /** The owner's approval of one payment lifts it. */
  approvable?: true;
  /** Why custody does not sign a payment that the setting alone refuses. */
  refusal: string;
  /** Describes a value that is set to the owner, given its text. */
  describe: (text: string) => string;
}

type Table = Readonly<Record<string, Declaration>>;

export const AGENT = {
  dailyLimit: {
    kind: AMOUNT,
    since: 1,
    column: "daily_limit",
    label: "Daily limit",
    help: "In any 24 hours, rolling",
    description: "USDC in any 24 hours",
    required: true,
    window: "24h",
    approvable: true,
    refusal: "it is above the daily limit",
    describe: (text) => `In any 24 hours at most ${text}.`,
  },
  weeklyLimit: {
    kind: OPTIONAL_AMOUNT,
    since: 1,
    column: "weekly_limit",
    label: "Weekly limit",
    help: "Optional. In any 7 days, rolling",
    description: "USDC in any 7 days",
    window: "7d",
    approvable: true,
    refusal: "it is above the weekly limit",
    describe: (text) => `In any 7 days at most ${text}.`,
  },
  monthlyLimit: {
    kind: OPTIONAL_AMOUNT,
    since: 1,
    column: "monthly_limit",
    label: "Monthly limit",
    help: "Optional. In any 30 days, rolling",
    description: "USDC in any 30 days",
    window: "30d",
    approvable: true,
    refusal: "it is above the monthly limit",
    describe: (text) => `In any 30 days at most ${text}.`,
  },
  perPaymentLimit: {
    kind: OPTIONAL_AMOUNT,
    since: 1,
    column: "per_payment_limit",
    label: "Limit per payment",
    help: "Optional",
    description: "USDC in one payment",
    approvable: true,
    refusal: "it is above the limit per payment",
    describe: (text) => `A single payment is at most ${text}.`,
  },
  paymentsPerHour: {
    kind: COUNT,
    since: 1,
    column: "payments_per_hour",
    label: "Payments per hour",
    help: "Optional. In any hour, rolling",
    description: "Payments in any hour, of any amount",
    window: "1h",
    approvable: true,
    refusal: "there were too many payments in the last hour",
    describe: (text) =>
      `It makes at most ${text} ${text === "1" ? "payment" : "payments"} in an hour.`,
  },
  fetch: {
    kind: choice({ any: "any site", sites: "only the sites of its payees" }),
    since: 1,
    column: "fetch_scope",
    label: "Sites it may fetch from",
    help: "Also applies to free responses",
    description: "any: every URL; sites: x402-fetch reaches only the sites of its payees",
    refusal: "the owner did not sign for this site",
    describe: () => "It fetches only from the sites of its payees.",
  },
  expiresAt: {
    kind: TIME,
    since: 1,
    column: "expires_at",
    label: "Expires",
    help: "The agent cannot pay after this time",
    description: "The agent pays nobody after this time",
    refusal: "the policy has expired",
    describe: (text) => `It stops paying on ${text}.`,
  },
  channelHeld: {
    kind: HELD,
    since: 2,
    column: "channel_held",
    label: "Held in payment channels",
    help: "Optional. The most that may lie in channels unspent; 0 allows none",
    description: "USDC that may lie unspent in payment channels; 0: no channels",
    refusal: "the owner did not sign for so much in payment channels",
    describe: (text) => `At most ${text} lies unspent in payment channels.`,
  },
  channelDelay: {
    kind: DURATION,
    since: 2,
    column: "channel_delay",
    label: "Withdraw delay of channels",
    help: "How long a channel may take to return unspent money",
    description: "Seconds: the longest withdraw delay of a payment channel",
    refusal: "the channel's withdraw delay is longer than the owner signed",
    describe: (text) => `A payment channel returns unspent money within ${text}.`,
  },
  payHours: {
    kind: HOURS,
    since: 3,
    column: "pay_hours",
    label: "Hours of the day",
    help: "Optional. Such as 08:00-18:00, in UTC; may cross midnight",
    description:
      "Hours in UTC in which it pays, such as 08:00-18:00; they may cross midnight, and the end is not one of them",
    refusal: "it does not pay at this hour",
    describe: (text) => `It pays only at ${text}.`,
  },
  payDays: {
    kind: DAYS,
    since: 3,
    column: "pay_days",
    label: "Days of the week",
    help: "Optional. Such as mon,tue,wed,thu,fri, in UTC",
    description: "Days in UTC on which it pays, such as mon,tue,wed,thu,fri",
    refusal: "it does not pay on this day",
    describe: (text) => `It pays only on ${text}.`,
  },
  pauseAfterFailures: {
    kind: FAILURES,
    since: 3,
    column: "pause_after_failures",
    label: "Pause after failures",
    help: "Optional. Failed and refused payments in an hour",
    description:
      "After so many failed or refused payments and paid fetches in an hour the agent is paused; null: never",
    refusal: "too many of its payments failed or were refused",
    describe: (text) => `It is paused ${text} failed or refused payments in an hour.`,
  },
  pauseAtRate: {
    kind: FACTOR,
    since: 3,
    column: "pause_at_rate",
    label: "Pause when it spends faster",
    help: "Optional. 5 pauses it above 5 times its usual day",
    description:
      "The agent is paused when its last 24 hours would exceed so many times its usual day: the mean of the 14 days before, of which it needs three; null: never",
    refusal: "it spends faster than usual",
    describe: (text) => `It is paused at ${text} the spending of its usual day.`,
  },
  pauseOnPriceJump: {
    kind: FACTOR,
    since: 4,
    column: "pause_on_price_jump",
    label: "Pause when a site's price jumps",
    help: "Optional. 5 pauses it above 5 times the site's highest price",
    description:
      "The agent is paused when a site asks for more than so many times the highest price that the agent paid there in the 30 days before, of which it needs three payments; null: never",
    refusal: "a site asked for far more than before",
    describe: (text) =>
      `It is paused when a site asks for more than ${text} its highest price before.`,
  },
} as const satisfies Table;

/** The settings of one payee. */
export const PAYEE = {
  dailyLimit: {
    kind: OPTIONAL_AMOUNT,
    since: 1,
    column: "daily_limit",
    label: "Daily limit",
    help: "Optional. For this payee, in any 24 hours, rolling",
    window: "24h",
    approvable: true,
    refusal: "it is above the payee's limit",
    describe: (text) => `${text} a day`,
  },
  perPaymentLimit: {
    kind: OPTIONAL_AMOUNT,
    since: 1,
    column: "per_payment_limit",
    label: "Limit per payment",
    help: "Optional. For one payment to this payee",
    approvable: true,
    refusal: "it is above the payee's limit",
    describe: (text) => `${text} per payment`,
  },
  expiresAt: {
    kind: TIME,
    since: 1,
    column: "expires_at",
    label: "Until",
    help: "Optional. This payee cannot be paid after this time",
    approvable: true,
    refusal: "the payee has expired",
    describe: (text) => `until ${text}`,
  },
  channelHeld: {
    kind: OPTIONAL_HELD,
    since: 2,
    column: "channel_held",
    label: "Held in channels",
    help: "Optional. In channels to this payee; 0 allows none",
    description:
      "USDC that may lie unspent in payment channels to this payee; 0: none; null: only the agent's own limit applies",
    refusal: "the owner did not sign for so much in payment channels to this payee",
    describe: (text) => `at most ${text} in payment channels`,
  },
} as const satisfies Table;

/**
 * The rules about a payment to any payee, in the order in which they are checked, with the reason why an agent cannot
 * pay more. `limits.boundBy` names one of them.
 */
export const GENERAL_RULES = {
  pause_after_failures: "paused after too many failures",
  pause_at_rate: "paused because it spent faster than usual",
  pause_on_price_jump: "paused because a site's price jumped",
  status: "not active",
  expiry: "expired",
  pay_times: "outside the hours or days on which it pays",
  allowlist: "no payee is allowed yet",
  per_payment_limit: "capped by the limit per payment",
  payments_per_hour: "capped by the limit of payments per hour",
  daily_limit: "capped by the daily limit",
  weekly_limit: "capped by the weekly limit",
  monthly_limit: "capped by the monthly limit",
  budget: "capped by a budget over several agents",
  balance: "capped by the balance",
  floor: "less is left than the smallest possible payment",
  gas: "the gas budget is used up",
} as const;

export type AgentFieldName = keyof typeof AGENT;
export type PayeeFieldName = keyof typeof PAYEE;

export interface Field extends Declaration {
  name: string;
  /** The name of its value in the code. */
  member: string;
}

const listOf = (table: Table): Field[] =>
  Object.entries(table).map(([name, field]) => ({
    ...field,
    name,
    member: `${name}${field.kind.unit}`,
  }));

export const AGENT_FIELDS = listOf(AGENT);
export const PAYEE_FIELDS = listOf(PAYEE);

/** The settings that `limits` in responses does not show. */
export const SELF_FIELDS = AGENT_FIELDS.filter(({ window }) => window === undefined);

type IsFirst<D extends Declaration> = D["since"] extends 1 ? true : false;
type Member<N extends string, D extends Declaration> = `${N}${D["kind"]["unit"]}`;
type ValueOf<D extends Declaration> = D["kind"]["unset"];
type WireOf<D extends Declaration> = ReturnType<D["kind"]["wire"]>;

/** The values by name. One that is newer than version 1 may be missing: then it is not set. */
type ValuesOf<T extends Table> = {
  -readonly [
    N in keyof T & string as IsFirst<T[N]> extends true ? Member<N, T[N]> : never
  ]: ValueOf<T[N]>;
} & {
  -readonly [
    N in keyof T & string as IsFirst<T[N]> extends true ? never : Member<N, T[N]>
  ]?: ValueOf<T[N]>;
};
export type AgentSettings = ValuesOf<typeof AGENT>;
export type PayeeSettings = ValuesOf<typeof PAYEE>;

export type AgentWire = { -readonly [N in AgentFieldName]: WireOf<(typeof AGENT)[N]> };
export type PayeeWire = { -readonly [N in PayeeFieldName]: WireOf<(typeof PAYEE)[N]> };

type SelfFieldName = {
  [N in AgentFieldName]: (typeof AGENT)[N] extends { window: string } ? never : N;
}[AgentFieldName];
export type SelfWire = Pick<AgentWire, SelfFieldName>;

/** The value of a setting; a missing one is not set. */
export const valueIn = (settings: object, { member, kind }: Field): Value =>
  (settings as Record<string, Value | undefined>)[member] ?? kind.unset;

/** Only the settings among these members, each of them. */
export const settingsIn = <S extends object>(fields: readonly Field[], settings: S): S =>
  Object.fromEntries(fields.map((field) => [field.member, valueIn(settings, field)])) as S;

/** The settings in requests, responses and audit entries. */
export const settingsOnWire = (fields: readonly Field[], settings: object) =>
  Object.fromEntries(
    fields.map((field) => [field.name, field.kind.wire(valueIn(settings, field))]),
  );

/**
 * The settings that a request, a response or an audit entry contains; those that are missing stay missing. `unreadable`
 * returns the value of one that cannot be read, or throws.
 */
export const settingsFromWire = (
  fields: readonly Field[],
  wire: object,
  unreadable: (field: Field, reason: string, given: Wire) => Value,
): object =>
  Object.fromEntries(
    fields.flatMap((field) => {
      const given = (wire as Record<string, Wire | undefined>)[field.name];
      if (given === undefined) return [];
      const read = field.kind.readWire(given);
      return [[field.member, read.ok ? read.value : unreadable(field, read.reason, given)]];
    }),
  );

export const isSet = (settings: object, field: Field): boolean =>
  valueIn(settings, field) !== field.kind.unset;
