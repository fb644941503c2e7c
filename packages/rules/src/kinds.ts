/**
 * The kinds of values that a rule's setting can have. A kind defines how a value is written in the signed document, in
 * requests and responses, and in its column; which value allows more; and how people read it. Pure, and shared by the
 * server, the custody process and the web app.
 */
import { formatAtomic, parseDecimal, USDC_DECIMALS } from "../../paywall/src/money.ts";

export type Value = bigint | string | null;
export type Wire = string | number | null;

/** The facts of a payment that a single setting can refuse. */
export interface PaymentMoment {
  valueAtomic: bigint;
  nowSeconds: bigint;
  /** Only of a payment through a channel: the deposit that it signs, 0 for a voucher alone. */
  depositAtomic?: bigint;
  /** Only of a payment through a channel. */
  withdrawDelaySeconds?: bigint;
}

/** Formats values for people; the web app and the server format amounts and times differently. */
export interface Show {
  usdc(atomic: bigint): string;
  time(seconds: bigint): string;
}

type Read<V> = { ok: true; value: V } | { ok: false; reason: string };

export interface Kind<
  V extends Value = Value,
  W extends Wire = Wire,
  Unit extends string = string,
> {
  /** Selects the control in the form, and the schema in requests. */
  name: string;
  /** The end of the value's name in the code, because units are in names. */
  unit: Unit;
  /** Its type in the signed document (EIP-712). */
  type: "uint256" | "string";
  column: "numeric" | "integer" | "timestamp" | "text";
  /** The value of an agent whose owner did not set it. It must allow what was allowed before the setting existed. */
  unset: V;
  /** The error code for a value that cannot be read. */
  fault: "invalid_amount" | "validation_failed";
  /**
   * The JSON schema of a value in requests and responses; amounts and times have those of server/schemas/common.ts.
   */
  schema?: object;
  /** The value in the signed document. */
  sign(value: V): string;
  /** Called with a well-formed member of the kind's type. An unknown text must be read as the tightest value. */
  readSigned(text: string): V;
  /** The value in requests, responses and audit entries. */
  wire(value: V): W;
  readWire(wire: W): Read<V>;
  /** The value that a form contains as text, which is not empty. */
  readTyped(text: string): W;
  /** The values that the form offers to choose from; without it the value is typed. */
  offers?: readonly W[];
  /** What the form shows for a text that cannot be read. */
  hint: string;
  /** Whether the wanted value allows anything that the current one does not. */
  allowsMore(wanted: V, current: V): boolean;
  /**
   * Whether the setting alone refuses this payment. Missing if that needs more than this payment, such as the number of
   * the others; test/helpers/settings.ts then says who decides.
   */
  refuses?(value: V, payment: PaymentMoment): boolean;
  text(value: V, show: Show): string;
  /** The value whose text a wallet showed (`SIGNED`). Texts that it does not write may be read as anything. */
  readText(text: string): V | undefined;
}

/** How a wallet shows values: the same characters everywhere, and another text for each value. */
export const SIGNED: Show = {
  usdc(atomic) {
    const [whole = "", fraction = ""] = formatAtomic(atomic).split(".");
    return `${whole}.${fraction.padEnd(2, "0")}`;
  },
  time(seconds) {
    if (seconds > LAST_SECOND) return String(seconds);
    const text = new Date(Number(seconds) * 1000).toISOString();
    return `${text.slice(0, 19).replace("T", " ").replace(/:00$/, "")} UTC`;
  },
};
/** Of the year 9999. */
const LAST_SECOND = 253_402_300_799n;

function amountIn(text: string): bigint | undefined {
  const [, whole, fraction = ""] = /^([0-9]{1,78})\.([0-9]{2,6}) USDC$/.exec(text) ?? [];
  return whole === undefined ? undefined : BigInt(whole + fraction.padEnd(USDC_DECIMALS, "0"));
}
const numberIn = (text: string): bigint | undefined =>
  /^[0-9]{1,78}$/.test(text) ? BigInt(text) : undefined;

function timeIn(text: string): bigint | undefined {
  const ms = Date.parse(text.replace(" UTC", "Z").replace(" ", "T"));
  return text.endsWith(" UTC") && Number.isInteger(ms) ? BigInt(ms) / 1000n : numberIn(text);
}

/** The value in a document for no limit and no end. "0" is a limit like any other: nothing can be spent. */
const ABSENT = (1n << 256n) - 1n;
export const signOptional = (value: bigint | null): string => String(value ?? ABSENT);
/** Null means no limit, or no end. */
export function readOptional(text: string): bigint | null {
  const number = BigInt(text);
  return number === ABSENT ? null : number;
}

/** Null is no limit, or no end. */
const isHigher = (wanted: bigint | null, current: bigint | null): boolean =>
  current !== null && (wanted === null || wanted > current);

const amountOf = (text: string): Read<bigint> => {
  const parsed = parseDecimal(text);
  return parsed.ok ? { ok: true, value: parsed.atomic } : parsed;
};
const AMOUNT_HINT = "Enter an amount such as 5 or 0.25, with at most 6 decimals.";

/** An amount that every owner sets. */
export const AMOUNT: Kind<bigint, string, "Atomic"> = {
  name: "amount",
  unit: "Atomic",
  type: "uint256",
  column: "numeric",
  unset: 0n,
  fault: "invalid_amount",
  hint: AMOUNT_HINT,
  sign: String,
  readSigned: BigInt,
  wire: formatAtomic,
  readWire: amountOf,
  readTyped: (text) => text,
  allowsMore: isHigher,
  refuses: (limit, { valueAtomic }) => valueAtomic > limit,
  text: (limit, show) => `${show.usdc(limit)} USDC`,
  readText: amountIn,
};

export const OPTIONAL_AMOUNT: Kind<bigint | null, string | null, "Atomic"> = {
  name: "amount",
  unit: "Atomic",
  type: "uint256",
  column: "numeric",
  unset: null,
  fault: "invalid_amount",
  hint: AMOUNT_HINT,
  sign: signOptional,
  readSigned: readOptional,
  wire: (limit) => (limit === null ? null : formatAtomic(limit)),
  readWire: (wire) => (wire === null ? { ok: true, value: null } : amountOf(wire)),
  readTyped: (text) => text,
  allowsMore: isHigher,
  refuses: (limit, { valueAtomic }) => limit !== null && valueAtomic > limit,
  text: (limit, show) => (limit === null ? "no limit" : `${show.usdc(limit)} USDC`),
  readText: (text) => (text === "no limit" ? null : amountIn(text)),
};

/** A deposit above the limit is refused; a limit of 0 also refuses a payment from what an earlier deposit left. */
const refusesChannel = (limit: bigint, { depositAtomic }: PaymentMoment): boolean =>
  depositAtomic !== undefined && (limit === 0n || depositAtomic > limit);

/** The most that may lie unspent in payment channels. */
export const HELD: typeof AMOUNT = {
  ...AMOUNT,
  name: "held",
  refuses: refusesChannel,
  text: (limit, show) => (limit === 0n ? "none" : AMOUNT.text(limit, show)),
  readText: (text) => (text === "none" ? 0n : amountIn(text)),
};

export const OPTIONAL_HELD: typeof OPTIONAL_AMOUNT = {
  ...OPTIONAL_AMOUNT,
  name: "held",
  refuses: (limit, payment) => limit !== null && refusesChannel(limit, payment),
  text: (limit, show) =>
    limit === null ? "no limit of its own" : OPTIONAL_AMOUNT.text(limit, show),
  readText: (text) => (text === "no limit of its own" ? null : amountIn(text)),
};

const MAX_COUNT = 1_000_000;

/** A number of payments. */
export const COUNT: Kind<bigint | null, number | null, ""> = {
  name: "count",
  unit: "",
  type: "uint256",
  column: "integer",
  unset: null,
  fault: "validation_failed",
  schema: { type: "integer", minimum: 0, maximum: MAX_COUNT },
  hint: "Enter a whole number of at most a million.",
  sign: signOptional,
  readSigned: readOptional,
  wire: (count) => (count === null ? null : Number(count)),
  readWire: (wire) =>
    wire === null
      ? { ok: true, value: null }
      : Number.isInteger(wire) && wire >= 0 && wire <= MAX_COUNT
        ? { ok: true, value: BigInt(wire) }
        : { ok: false, reason: "must be a whole number of at most a million" },
  readTyped: Number,
  allowsMore: isHigher,
  text: (count) => (count === null ? "no limit" : String(count)),
  readText: (text) => (text === "no limit" ? null : numberIn(text)),
};

/** A count of at least `least`, and not set for null. */
const countFrom = (
  least: number,
  name: string,
  text: (count: bigint) => string,
  read: RegExp,
): typeof COUNT => ({
  ...COUNT,
  name,
  schema: { type: "integer", minimum: least, maximum: MAX_COUNT },
  hint: `Enter a whole number from ${least} to a million.`,
  readWire: (wire) =>
    wire !== null && wire < least
      ? { ok: false, reason: `must be a whole number from ${least} to a million` }
      : COUNT.readWire(wire),
  text: (count) => (count === null ? "never" : text(count)),
  readText: (shown) => (shown === "never" ? null : numberIn(read.exec(shown)?.[1] ?? "")),
});

/** After how many failures an agent is paused. */
export const FAILURES = countFrom(1, "failures", (count) => `after ${count}`, /^after ([0-9]+)$/);
/** Above which multiple of what is usual an agent is paused. */
export const FACTOR = countFrom(2, "factor", (count) => `${count} times`, /^([0-9]+) times$/);

const MINUTES_A_DAY = 24 * 60;
const HOURS_FORM = /^([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])$/;
/** A signed text that this release cannot read allows no time at all. */
const NO_TIME = "none";

/** Whether the minute of the day is within the hours, which may cross midnight; the end is not. */
function isWithin(hours: string, minute: number): boolean {
  const [, fromHour, fromMinute, toHour, toMinute] = HOURS_FORM.exec(hours) ?? [];
  const from = Number(fromHour) * 60 + Number(fromMinute);
  const to = Number(toHour) * 60 + Number(toMinute);
  return from < to ? minute >= from && minute < to : minute >= from || minute < to;
}

const isHours = (text: string): boolean => {
  const [from, to] = text.split("-");
  return HOURS_FORM.test(text) && from !== to;
};

const paysAtMinute = (hours: string | null, minute: number): boolean =>
  hours === null || (isHours(hours) && isWithin(hours, minute));

const EVERY_MINUTE = Array.from({ length: MINUTES_A_DAY }, (_, minute) => minute);

/** The hours of the day on which an agent pays, in UTC, such as 08:00-18:00; they may cross midnight. */
export const HOURS: Kind<string | null, string | null, ""> = {
  name: "hours",
  unit: "",
  type: "string",
  column: "text",
  unset: null,
  fault: "validation_failed",
  schema: { type: "string", pattern: HOURS_FORM.source, examples: ["08:00-18:00"] },
  hint: "Enter two different times such as 08:00-18:00, in UTC.",
  sign: (hours) => hours ?? "",
  readSigned: (text) => (text === "" ? null : isHours(text) ? text : NO_TIME),
  wire: (hours) => hours,
  readWire: (wire) =>
    wire === null || isHours(wire)
      ? { ok: true, value: wire }
      : { ok: false, reason: "must be two different times such as 08:00-18:00" },
  readTyped: (text) => text.trim(),
  allowsMore: (wanted, current) =>
    EVERY_MINUTE.some((minute) => paysAtMinute(wanted, minute) && !paysAtMinute(current, minute)),
  refuses: (hours, { nowSeconds }) =>
    hours !== null && !paysAtMinute(hours, Number(nowSeconds / 60n) % MINUTES_A_DAY),
  text: (hours) => (hours === null ? "at any hour" : `${hours} UTC`),
  readText: (text) => (text === "at any hour" ? null : /^(.+) UTC$/.exec(text)?.[1]),
};

const WEEK = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/** In the order of the week, each at most once, and not all of them. */
const isDays = (text: string): boolean => {
  const days = text.split(",");
  return days.length < WEEK.length && WEEK.filter((day) => days.includes(day)).join(",") === text;
};
const paysOn = (days: string | null, day: string): boolean =>
  days === null || (isDays(days) && days.split(",").includes(day));
/** 1970 began on a Thursday. */
const dayOf = (nowSeconds: bigint): string => WEEK[Number((nowSeconds / 86_400n + 3n) % 7n)] ?? "";

/** The days of the week on which an agent pays, in UTC, such as mon,tue,wed,thu,fri. */
export const DAYS: Kind<string | null, string | null, ""> = {
  ...HOURS,
  name: "days",
  schema: {
    type: "string",
    pattern: `^(${WEEK.join("|")})(,(${WEEK.join("|")}))*$`,
    examples: ["mon,tue,wed,thu,fri"],
  },
  hint: "Enter days such as mon,tue,wed,thu,fri.",
  readSigned: (text) => (text === "" ? null : isDays(text) ? text : NO_TIME),
  readWire: (wire) =>
    wire === null || isDays(wire)
      ? { ok: true, value: wire }
      : { ok: false, reason: "must be some days in the order of the week, such as mon,tue,wed" },
  readTyped: (text) => text.trim().toLowerCase().replaceAll(" ", ""),
  allowsMore: (wanted, current) => WEEK.some((day) => paysOn(wanted, day) && !paysOn(current, day)),
  refuses: (days, { nowSeconds }) => days !== null && !paysOn(days, dayOf(nowSeconds)),
  text: (days) => (days === null ? "on every day" : days),
  readText: (text) => (text === "on every day" ? null : text),
};

/** The time at which something ends, in whole seconds. */
export const TIME: Kind<bigint | null, string | null, "Seconds"> = {
  name: "time",
  unit: "Seconds",
  type: "uint256",
  column: "timestamp",
  unset: null,
  fault: "validation_failed",
  hint: "Choose a date and time.",
  sign: signOptional,
  readSigned: readOptional,
  wire: (seconds) => (seconds === null ? null : new Date(Number(seconds) * 1000).toISOString()),
  readWire(wire) {
    if (wire === null) return { ok: true, value: null };
    const time = new Date(wire);
    const year = time.getUTCFullYear();
    if (Number.isNaN(time.getTime()) || year < 1970 || year > 9999)
      return { ok: false, reason: "must be a time in RFC 3339 format" };
    // Rounded down to whole seconds, so that it is never later than requested.
    return { ok: true, value: BigInt(Math.floor(time.getTime() / 1000)) };
  },
  readTyped: (text) => text,
  allowsMore: isHigher,
  refuses: (end, { nowSeconds }) => end !== null && end <= nowSeconds,
  text: (end, show) => (end === null ? "never" : show.time(end)),
  readText: (text) => (text === "never" ? null : timeIn(text)),
};

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** The limits of the channels' contract. */
const SHORTEST = 15 * MINUTE;
const LONGEST = 30 * DAY;

const UNITS: [number, string][] = [
  [DAY, "day"],
  [HOUR, "hour"],
  [MINUTE, "minute"],
  [1, "second"],
];

/** Such as "90 minutes": in the largest unit that gives a whole number. */
export function durationText(seconds: bigint): string {
  const whole = UNITS.find(([length]) => seconds % BigInt(length) === 0n);
  const [length, unit] = whole ?? [1, "second"];
  const count = seconds / BigInt(length);
  return `${count} ${unit}${count === 1n ? "" : "s"}`;
}

/** The longest time that something may take. */
export const DURATION: Kind<bigint, number, "Seconds"> = {
  name: "duration",
  unit: "Seconds",
  type: "uint256",
  column: "integer",
  unset: BigInt(DAY),
  fault: "validation_failed",
  schema: { type: "integer", minimum: SHORTEST, maximum: LONGEST },
  offers: [SHORTEST, HOUR, 6 * HOUR, DAY, 7 * DAY, LONGEST],
  hint: "Choose one of them.",
  sign: String,
  readSigned: BigInt,
  wire: Number,
  readWire: (wire) =>
    Number.isInteger(wire) && wire >= SHORTEST && wire <= LONGEST
      ? { ok: true, value: BigInt(wire) }
      : { ok: false, reason: `must be a whole number of seconds from ${SHORTEST} to ${LONGEST}` },
  readTyped: Number,
  allowsMore: isHigher,
  refuses: (longest, { withdrawDelaySeconds }) =>
    withdrawDelaySeconds !== undefined && withdrawDelaySeconds > longest,
  text: durationText,
  readText(text) {
    const [, count = "", word] = /^([0-9]{1,78}) ([a-z]+?)s?$/.exec(text) ?? [];
    const [length] = UNITS.find(([, unit]) => unit === word) ?? [];
    return length === undefined ? undefined : BigInt(count) * BigInt(length);
  },
};

export interface Choice<C extends string> extends Kind<C, C, ""> {
  /** With their texts, from the widest to the tightest. */
  choices: Readonly<Record<C, string>>;
}

/** One of some words, from the widest, which is that of an agent whose owner did not set it, to the tightest. */
export function choice<C extends string>(choices: Readonly<Record<C, string>>): Choice<C> {
  const words = Object.keys(choices) as C[];
  const [widest, tightest] = [words[0], words.at(-1)] as [C, C];
  const read = (text: string): C => words.find((word) => word === text) ?? tightest;
  return {
    name: "choice",
    unit: "",
    type: "string",
    column: "text",
    unset: widest,
    fault: "validation_failed",
    schema: { type: "string", enum: words },
    offers: words,
    hint: "Choose one of them.",
    choices,
    sign: (word) => word,
    // Fail safe: a word that this release does not know is the tightest one.
    readSigned: read,
    wire: (word) => word,
    readWire: (word) =>
      words.includes(word)
        ? { ok: true, value: word }
        : { ok: false, reason: `must be one of ${words.join(", ")}` },
    readTyped: (text) => text as C,
    allowsMore: (wanted, current) => words.indexOf(wanted) < words.indexOf(current),
    text: (word) => choices[word],
    readText: (text) => words.find((word) => choices[word] === text),
  };
}
