// Checks the export of an audit: see check-an-audit.md. Written from server/plugins/audit by `npm run derive`: change that.

// server/plugins/audit/check-file.ts
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";

// server/plugins/audit/verify.ts
import { createHash as createHash2 } from "node:crypto";
import { hashMessage, recoverAddress } from "viem";

// server/core/orders.ts
import { getAddress } from "viem";

// packages/paywall/src/money.ts
var USDC_DECIMALS = 6;
var ATOMIC_PER_USDC = 1000000n;
var DECIMAL_PATTERN = /^(0|[1-9][0-9]{0,39})(?:\.([0-9]{1,6}))?$/;
var LONG_PATTERN = /^(0|[1-9][0-9]{0,39})\.[0-9]{7,}$/;
var MAX_UINT256 = (1n << 256n) - 1n;
function parseDecimal(text2) {
  if (typeof text2 !== "string") return { ok: false, reason: 'must be a string such as "1.50"' };
  const match = DECIMAL_PATTERN.exec(text2);
  if (!match) {
    if (LONG_PATTERN.test(text2))
      return { ok: false, reason: `has too many decimals: USDC has ${USDC_DECIMALS} decimals` };
    return {
      ok: false,
      reason: 'must be a plain decimal such as "1.50": digits, at most 6 decimals, no sign, exponent or spaces'
    };
  }
  const whole = BigInt(match[1] ?? "0");
  const fraction = BigInt((match[2] ?? "").padEnd(USDC_DECIMALS, "0"));
  const atomic = whole * ATOMIC_PER_USDC + fraction;
  return { ok: true, atomic };
}
function formatAtomic(atomic) {
  const sign = atomic < 0n ? "-" : "";
  const value = atomic < 0n ? -atomic : atomic;
  const fraction = (value % ATOMIC_PER_USDC).toString().padStart(USDC_DECIMALS, "0").replace(/0+$/, "");
  const whole = (value / ATOMIC_PER_USDC).toString();
  return fraction === "" ? `${sign}${whole}` : `${sign}${whole}.${fraction}`;
}
function parseAtomic(text2) {
  if (typeof text2 !== "string" || !/^(0|[1-9][0-9]{0,77})$/.test(text2)) return void 0;
  const atomic = BigInt(text2);
  return atomic <= MAX_UINT256 ? atomic : void 0;
}

// packages/rules/src/kinds.ts
var SIGNED = {
  usdc(atomic) {
    const [whole = "", fraction = ""] = formatAtomic(atomic).split(".");
    return `${whole}.${fraction.padEnd(2, "0")}`;
  },
  time(seconds) {
    if (seconds > LAST_SECOND) return String(seconds);
    const text2 = new Date(Number(seconds) * 1e3).toISOString();
    return `${text2.slice(0, 19).replace("T", " ").replace(/:00$/, "")} UTC`;
  }
};
var LAST_SECOND = 253402300799n;
function amountIn(text2) {
  const [, whole, fraction = ""] = /^([0-9]{1,78})\.([0-9]{2,6}) USDC$/.exec(text2) ?? [];
  return whole === void 0 ? void 0 : BigInt(whole + fraction.padEnd(USDC_DECIMALS, "0"));
}
var numberIn = (text2) => /^[0-9]{1,78}$/.test(text2) ? BigInt(text2) : void 0;
function timeIn(text2) {
  const ms = Date.parse(text2.replace(" UTC", "Z").replace(" ", "T"));
  return text2.endsWith(" UTC") && Number.isInteger(ms) ? BigInt(ms) / 1000n : numberIn(text2);
}
var ABSENT = (1n << 256n) - 1n;
var signOptional = (value) => String(value ?? ABSENT);
function readOptional(text2) {
  const number2 = BigInt(text2);
  return number2 === ABSENT ? null : number2;
}
var isHigher = (wanted, current) => current !== null && (wanted === null || wanted > current);
var amountOf = (text2) => {
  const parsed = parseDecimal(text2);
  return parsed.ok ? { ok: true, value: parsed.atomic } : parsed;
};
var AMOUNT_HINT = "Enter an amount such as 5 or 0.25, with at most 6 decimals.";
var AMOUNT = {
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
  readTyped: (text2) => text2,
  allowsMore: isHigher,
  refuses: (limit, { valueAtomic }) => valueAtomic > limit,
  text: (limit, show) => `${show.usdc(limit)} USDC`,
  readText: amountIn
};
var OPTIONAL_AMOUNT = {
  name: "amount",
  unit: "Atomic",
  type: "uint256",
  column: "numeric",
  unset: null,
  fault: "invalid_amount",
  hint: AMOUNT_HINT,
  sign: signOptional,
  readSigned: readOptional,
  wire: (limit) => limit === null ? null : formatAtomic(limit),
  readWire: (wire) => wire === null ? { ok: true, value: null } : amountOf(wire),
  readTyped: (text2) => text2,
  allowsMore: isHigher,
  refuses: (limit, { valueAtomic }) => limit !== null && valueAtomic > limit,
  text: (limit, show) => limit === null ? "no limit" : `${show.usdc(limit)} USDC`,
  readText: (text2) => text2 === "no limit" ? null : amountIn(text2)
};
var refusesChannel = (limit, { depositAtomic }) => depositAtomic !== void 0 && (limit === 0n || depositAtomic > limit);
var HELD = {
  ...AMOUNT,
  name: "held",
  refuses: refusesChannel,
  text: (limit, show) => limit === 0n ? "none" : AMOUNT.text(limit, show),
  readText: (text2) => text2 === "none" ? 0n : amountIn(text2)
};
var OPTIONAL_HELD = {
  ...OPTIONAL_AMOUNT,
  name: "held",
  refuses: (limit, payment) => limit !== null && refusesChannel(limit, payment),
  text: (limit, show) => limit === null ? "no limit of its own" : OPTIONAL_AMOUNT.text(limit, show),
  readText: (text2) => text2 === "no limit of its own" ? null : amountIn(text2)
};
var MAX_COUNT = 1e6;
var COUNT = {
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
  wire: (count) => count === null ? null : Number(count),
  readWire: (wire) => wire === null ? { ok: true, value: null } : Number.isInteger(wire) && wire >= 0 && wire <= MAX_COUNT ? { ok: true, value: BigInt(wire) } : { ok: false, reason: "must be a whole number of at most a million" },
  readTyped: Number,
  allowsMore: isHigher,
  text: (count) => count === null ? "no limit" : String(count),
  readText: (text2) => text2 === "no limit" ? null : numberIn(text2)
};
var countFrom = (least, name, text2, read2) => ({
  ...COUNT,
  name,
  schema: { type: "integer", minimum: least, maximum: MAX_COUNT },
  hint: `Enter a whole number from ${least} to a million.`,
  readWire: (wire) => wire !== null && wire < least ? { ok: false, reason: `must be a whole number from ${least} to a million` } : COUNT.readWire(wire),
  text: (count) => count === null ? "never" : text2(count),
  readText: (shown) => shown === "never" ? null : numberIn(read2.exec(shown)?.[1] ?? "")
});
var FAILURES = countFrom(1, "failures", (count) => `after ${count}`, /^after ([0-9]+)$/);
var FACTOR = countFrom(2, "factor", (count) => `${count} times`, /^([0-9]+) times$/);
var MINUTES_A_DAY = 24 * 60;
var HOURS_FORM = /^([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])$/;
var NO_TIME = "none";
function isWithin(hours, minute) {
  const [, fromHour, fromMinute, toHour, toMinute] = HOURS_FORM.exec(hours) ?? [];
  const from = Number(fromHour) * 60 + Number(fromMinute);
  const to = Number(toHour) * 60 + Number(toMinute);
  return from < to ? minute >= from && minute < to : minute >= from || minute < to;
}
var isHours = (text2) => {
  const [from, to] = text2.split("-");
  return HOURS_FORM.test(text2) && from !== to;
};
var paysAtMinute = (hours, minute) => hours === null || isHours(hours) && isWithin(hours, minute);
var EVERY_MINUTE = Array.from({ length: MINUTES_A_DAY }, (_, minute) => minute);
var HOURS = {
  name: "hours",
  unit: "",
  type: "string",
  column: "text",
  unset: null,
  fault: "validation_failed",
  schema: { type: "string", pattern: HOURS_FORM.source, examples: ["08:00-18:00"] },
  hint: "Enter two different times such as 08:00-18:00, in UTC.",
  sign: (hours) => hours ?? "",
  readSigned: (text2) => text2 === "" ? null : isHours(text2) ? text2 : NO_TIME,
  wire: (hours) => hours,
  readWire: (wire) => wire === null || isHours(wire) ? { ok: true, value: wire } : { ok: false, reason: "must be two different times such as 08:00-18:00" },
  readTyped: (text2) => text2.trim(),
  allowsMore: (wanted, current) => EVERY_MINUTE.some((minute) => paysAtMinute(wanted, minute) && !paysAtMinute(current, minute)),
  refuses: (hours, { nowSeconds }) => hours !== null && !paysAtMinute(hours, Number(nowSeconds / 60n) % MINUTES_A_DAY),
  text: (hours) => hours === null ? "at any hour" : `${hours} UTC`,
  readText: (text2) => text2 === "at any hour" ? null : /^(.+) UTC$/.exec(text2)?.[1]
};
var WEEK = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
var isDays = (text2) => {
  const days = text2.split(",");
  return days.length < WEEK.length && WEEK.filter((day) => days.includes(day)).join(",") === text2;
};
var paysOn = (days, day) => days === null || isDays(days) && days.split(",").includes(day);
var dayOf = (nowSeconds) => WEEK[Number((nowSeconds / 86400n + 3n) % 7n)] ?? "";
var DAYS = {
  ...HOURS,
  name: "days",
  schema: {
    type: "string",
    pattern: `^(${WEEK.join("|")})(,(${WEEK.join("|")}))*$`,
    examples: ["mon,tue,wed,thu,fri"]
  },
  hint: "Enter days such as mon,tue,wed,thu,fri.",
  readSigned: (text2) => text2 === "" ? null : isDays(text2) ? text2 : NO_TIME,
  readWire: (wire) => wire === null || isDays(wire) ? { ok: true, value: wire } : { ok: false, reason: "must be some days in the order of the week, such as mon,tue,wed" },
  readTyped: (text2) => text2.trim().toLowerCase().replaceAll(" ", ""),
  allowsMore: (wanted, current) => WEEK.some((day) => paysOn(wanted, day) && !paysOn(current, day)),
  refuses: (days, { nowSeconds }) => days !== null && !paysOn(days, dayOf(nowSeconds)),
  text: (days) => days === null ? "on every day" : days,
  readText: (text2) => text2 === "on every day" ? null : text2
};
var TIME = {
  name: "time",
  unit: "Seconds",
  type: "uint256",
  column: "timestamp",
  unset: null,
  fault: "validation_failed",
  hint: "Choose a date and time.",
  sign: signOptional,
  readSigned: readOptional,
  wire: (seconds) => seconds === null ? null : new Date(Number(seconds) * 1e3).toISOString(),
  readWire(wire) {
    if (wire === null) return { ok: true, value: null };
    const time = new Date(wire);
    const year = time.getUTCFullYear();
    if (Number.isNaN(time.getTime()) || year < 1970 || year > 9999)
      return { ok: false, reason: "must be a time in RFC 3339 format" };
    return { ok: true, value: BigInt(Math.floor(time.getTime() / 1e3)) };
  },
  readTyped: (text2) => text2,
  allowsMore: isHigher,
  refuses: (end, { nowSeconds }) => end !== null && end <= nowSeconds,
  text: (end, show) => end === null ? "never" : show.time(end),
  readText: (text2) => text2 === "never" ? null : timeIn(text2)
};
var MINUTE = 60;
var HOUR = 60 * MINUTE;
var DAY = 24 * HOUR;
var SHORTEST = 15 * MINUTE;
var LONGEST = 30 * DAY;
var UNITS = [
  [DAY, "day"],
  [HOUR, "hour"],
  [MINUTE, "minute"],
  [1, "second"]
];
function durationText(seconds) {
  const whole = UNITS.find(([length2]) => seconds % BigInt(length2) === 0n);
  const [length, unit] = whole ?? [1, "second"];
  const count = seconds / BigInt(length);
  return `${count} ${unit}${count === 1n ? "" : "s"}`;
}
var DURATION = {
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
  readWire: (wire) => Number.isInteger(wire) && wire >= SHORTEST && wire <= LONGEST ? { ok: true, value: BigInt(wire) } : { ok: false, reason: `must be a whole number of seconds from ${SHORTEST} to ${LONGEST}` },
  readTyped: Number,
  allowsMore: isHigher,
  refuses: (longest, { withdrawDelaySeconds }) => withdrawDelaySeconds !== void 0 && withdrawDelaySeconds > longest,
  text: durationText,
  readText(text2) {
    const [, count = "", word] = /^([0-9]{1,78}) ([a-z]+?)s?$/.exec(text2) ?? [];
    const [length] = UNITS.find(([, unit]) => unit === word) ?? [];
    return length === void 0 ? void 0 : BigInt(count) * BigInt(length);
  }
};
function choice(choices) {
  const words = Object.keys(choices);
  const [widest, tightest] = [words[0], words.at(-1)];
  const read2 = (text2) => words.find((word) => word === text2) ?? tightest;
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
    readSigned: read2,
    wire: (word) => word,
    readWire: (word) => words.includes(word) ? { ok: true, value: word } : { ok: false, reason: `must be one of ${words.join(", ")}` },
    readTyped: (text2) => text2,
    allowsMore: (wanted, current) => words.indexOf(wanted) < words.indexOf(current),
    text: (word) => choices[word],
    readText: (text2) => words.find((word) => choices[word] === text2)
  };
}

// packages/rules/src/fields.ts
var AGENT = {
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
    describe: (text2) => `In any 24 hours at most ${text2}.`
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
    describe: (text2) => `In any 7 days at most ${text2}.`
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
    describe: (text2) => `In any 30 days at most ${text2}.`
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
    describe: (text2) => `A single payment is at most ${text2}.`
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
    describe: (text2) => `It makes at most ${text2} ${text2 === "1" ? "payment" : "payments"} in an hour.`
  },
  fetch: {
    kind: choice({ any: "any site", sites: "only the sites of its payees" }),
    since: 1,
    column: "fetch_scope",
    label: "Sites it may fetch from",
    help: "Also applies to free responses",
    description: "any: every URL; sites: x402-fetch reaches only the sites of its payees",
    refusal: "the owner did not sign for this site",
    describe: () => "It fetches only from the sites of its payees."
  },
  expiresAt: {
    kind: TIME,
    since: 1,
    column: "expires_at",
    label: "Expires",
    help: "The agent cannot pay after this time",
    description: "The agent pays nobody after this time",
    refusal: "the policy has expired",
    describe: (text2) => `It stops paying on ${text2}.`
  },
  channelHeld: {
    kind: HELD,
    since: 2,
    column: "channel_held",
    label: "Held in payment channels",
    help: "Optional. The most that may lie in channels unspent; 0 allows none",
    description: "USDC that may lie unspent in payment channels; 0: no channels",
    refusal: "the owner did not sign for so much in payment channels",
    describe: (text2) => `At most ${text2} lies unspent in payment channels.`
  },
  channelDelay: {
    kind: DURATION,
    since: 2,
    column: "channel_delay",
    label: "Withdraw delay of channels",
    help: "How long a channel may take to return unspent money",
    description: "Seconds: the longest withdraw delay of a payment channel",
    refusal: "the channel's withdraw delay is longer than the owner signed",
    describe: (text2) => `A payment channel returns unspent money within ${text2}.`
  },
  payHours: {
    kind: HOURS,
    since: 3,
    column: "pay_hours",
    label: "Hours of the day",
    help: "Optional. Such as 08:00-18:00, in UTC; may cross midnight",
    description: "Hours in UTC in which it pays, such as 08:00-18:00; they may cross midnight, and the end is not one of them",
    refusal: "it does not pay at this hour",
    describe: (text2) => `It pays only at ${text2}.`
  },
  payDays: {
    kind: DAYS,
    since: 3,
    column: "pay_days",
    label: "Days of the week",
    help: "Optional. Such as mon,tue,wed,thu,fri, in UTC",
    description: "Days in UTC on which it pays, such as mon,tue,wed,thu,fri",
    refusal: "it does not pay on this day",
    describe: (text2) => `It pays only on ${text2}.`
  },
  pauseAfterFailures: {
    kind: FAILURES,
    since: 3,
    column: "pause_after_failures",
    label: "Pause after failures",
    help: "Optional. Failed and refused payments in an hour",
    description: "After so many failed or refused payments and paid fetches in an hour the agent is paused; null: never",
    refusal: "too many of its payments failed or were refused",
    describe: (text2) => `It is paused ${text2} failed or refused payments in an hour.`
  },
  pauseAtRate: {
    kind: FACTOR,
    since: 3,
    column: "pause_at_rate",
    label: "Pause when it spends faster",
    help: "Optional. 5 pauses it above 5 times its usual day",
    description: "The agent is paused when its last 24 hours would exceed so many times its usual day: the mean of the 14 days before, of which it needs three; null: never",
    refusal: "it spends faster than usual",
    describe: (text2) => `It is paused at ${text2} the spending of its usual day.`
  },
  pauseOnPriceJump: {
    kind: FACTOR,
    since: 4,
    column: "pause_on_price_jump",
    label: "Pause when a site's price jumps",
    help: "Optional. 5 pauses it above 5 times the site's highest price",
    description: "The agent is paused when a site asks for more than so many times the highest price that the agent paid there in the 30 days before, of which it needs three payments; null: never",
    refusal: "a site asked for far more than before",
    describe: (text2) => `It is paused when a site asks for more than ${text2} its highest price before.`
  }
};
var PAYEE = {
  dailyLimit: {
    kind: OPTIONAL_AMOUNT,
    since: 1,
    column: "daily_limit",
    label: "Daily limit",
    help: "Optional. For this payee, in any 24 hours, rolling",
    window: "24h",
    approvable: true,
    refusal: "it is above the payee's limit",
    describe: (text2) => `${text2} a day`
  },
  perPaymentLimit: {
    kind: OPTIONAL_AMOUNT,
    since: 1,
    column: "per_payment_limit",
    label: "Limit per payment",
    help: "Optional. For one payment to this payee",
    approvable: true,
    refusal: "it is above the payee's limit",
    describe: (text2) => `${text2} per payment`
  },
  expiresAt: {
    kind: TIME,
    since: 1,
    column: "expires_at",
    label: "Until",
    help: "Optional. This payee cannot be paid after this time",
    approvable: true,
    refusal: "the payee has expired",
    describe: (text2) => `until ${text2}`
  },
  channelHeld: {
    kind: OPTIONAL_HELD,
    since: 2,
    column: "channel_held",
    label: "Held in channels",
    help: "Optional. In channels to this payee; 0 allows none",
    description: "USDC that may lie unspent in payment channels to this payee; 0: none; null: only the agent's own limit applies",
    refusal: "the owner did not sign for so much in payment channels to this payee",
    describe: (text2) => `at most ${text2} in payment channels`
  }
};
var listOf = (table) => Object.entries(table).map(([name, field]) => ({
  ...field,
  name,
  member: `${name}${field.kind.unit}`
}));
var AGENT_FIELDS = listOf(AGENT);
var PAYEE_FIELDS = listOf(PAYEE);
var SELF_FIELDS = AGENT_FIELDS.filter(({ window }) => window === void 0);
var valueIn = (settings, { member, kind }) => settings[member] ?? kind.unset;
var settingsOnWire = (fields, settings) => Object.fromEntries(
  fields.map((field) => [field.name, field.kind.wire(valueIn(settings, field))])
);
var settingsFromWire = (fields, wire, unreadable) => Object.fromEntries(
  fields.flatMap((field) => {
    const given = wire[field.name];
    if (given === void 0) return [];
    const read2 = field.kind.readWire(given);
    return [[field.member, read2.ok ? read2.value : unreadable(field, read2.reason, given)]];
  })
);

// packages/rules/src/policy.ts
var newestVersion = () => Math.max(...[...AGENT_FIELDS, ...PAYEE_FIELDS].map(({ since }) => since));
var PolicyVersionUnknown = class extends Error {
  name = "PolicyVersionUnknown";
  constructor(version) {
    super(
      `The rules of this agent need version ${version} of the policy document, and this release knows versions up to ${newestVersion()}.`
    );
  }
};
function assertKnown(version) {
  if (version > newestVersion()) throw new PolicyVersionUnknown(version);
}
function versionOf(document) {
  const { documentVersion } = document;
  if (documentVersion === void 0) return 1;
  if (typeof documentVersion !== "string" || !/^[1-9][0-9]{0,8}$/.test(documentVersion))
    return void 0;
  const version = Number(documentVersion);
  assertKnown(version);
  return version === 1 ? void 0 : version;
}
var fieldsOf = (fields, from, to) => fields.filter(({ since }) => since >= from && since <= to).toSorted((left, right) => left.since - right.since);
var membersOf = (fields) => fields.map(({ name, kind }) => ({ name, type: kind.type }));
var known = /* @__PURE__ */ new Map();
function policyTypes(version) {
  const before = known.get(version);
  if (before) return before;
  const types = {
    AgentPolicy: [
      { name: "agent", type: "string" },
      { name: "wallet", type: "address" },
      { name: "version", type: "uint256" },
      { name: "name", type: "string" },
      ...membersOf(fieldsOf(AGENT_FIELDS, 1, 1)),
      { name: "payees", type: "Payee[]" },
      ...membersOf(fieldsOf(AGENT_FIELDS, 2, version)),
      ...version > 1 ? [{ name: "documentVersion", type: "uint256" }] : [],
      { name: "nonce", type: "bytes32" },
      { name: "deadline", type: "uint256" }
    ],
    Payee: [
      { name: "payee", type: "address" },
      { name: "label", type: "string" },
      { name: "site", type: "string" },
      ...membersOf(fieldsOf(PAYEE_FIELDS, 1, version))
    ]
  };
  known.set(version, types);
  return types;
}
var readSignedSettings = (fields, document) => Object.fromEntries(
  fields.map(({ name, member, kind }) => {
    const text2 = document[name];
    return [member, text2 === void 0 ? kind.unset : kind.readSigned(text2)];
  })
);
var rulesOfPolicy = (order) => {
  const version = versionOf(order);
  if (version === void 0) throw new Error("the version of the policy document is malformed");
  return {
    ...readSignedSettings(fieldsOf(AGENT_FIELDS, 1, version), order),
    payees: order.payees.map((payee) => ({
      ...readSignedSettings(fieldsOf(PAYEE_FIELDS, 1, version), payee),
      address: payee.payee.toLowerCase(),
      label: payee.label,
      site: payee.site
    }))
  };
};

// packages/rules/src/budgets.ts
var BUDGET_FIELDS = [
  { name: "dailyLimit", kind: OPTIONAL_AMOUNT, hours: 24, label: "In any 24 hours" },
  { name: "weeklyLimit", kind: OPTIONAL_AMOUNT, hours: 168, label: "In any 7 days" },
  { name: "monthlyLimit", kind: OPTIONAL_AMOUNT, hours: 720, label: "In any 30 days" }
];
var loosensBudget = (current, wanted) => BUDGET_FIELDS.some(({ name, kind }) => kind.allowsMore(wanted[name], current[name]));
var agentsText = (ids) => ids.toSorted().join(", ");

// packages/rules/src/readable.ts
var SETTINGS = {
  AgentPolicy: AGENT_FIELDS,
  Budget: BUDGET_FIELDS,
  Payee: PAYEE_FIELDS
};
var MEMBERS = {
  amount: AMOUNT,
  maxAmount: AMOUNT,
  approvalAbove: AMOUNT,
  expiresAt: TIME,
  deadline: TIME,
  stoppedAt: TIME
};
var kindOf = (struct, name) => SETTINGS[struct]?.find((field) => field.name === name)?.kind ?? MEMBERS[name];
var known2 = /* @__PURE__ */ new WeakMap();
function readableStructs(structs) {
  const before = known2.get(structs);
  if (before) return before;
  const readable = Object.fromEntries(
    Object.entries(structs).map(([struct, members]) => [
      struct,
      members.map(({ name, type }) => ({ name, type: kindOf(struct, name) ? "string" : type }))
    ])
  );
  known2.set(structs, readable);
  return readable;
}
function spell(kind, signed) {
  const value = kind.readSigned(signed);
  return kind.sign(value) === signed ? kind.text(value, SIGNED) : signed;
}
function read(kind, text2) {
  const value = kind.readText(text2);
  return value === void 0 || kind.text(value, SIGNED) !== text2 ? void 0 : kind.sign(value);
}
function through(structs, struct, message, change) {
  const changed = {};
  for (const { name, type } of structs[struct] ?? []) {
    const member = message[name];
    const kind = kindOf(struct, name);
    if (Array.isArray(member))
      changed[name] = member.map(
        (item) => through(structs, type.slice(0, -2), item, change)
      );
    else changed[name] = kind ? change(kind, String(member)) : member;
    const isMissing = (value) => value === void 0;
    if (isMissing(changed[name]) || Array.isArray(member) && changed[name].some(isMissing))
      return void 0;
  }
  return changed;
}
var readableMessage = (structs, struct, order) => through(structs, struct, order, spell) ?? {};
var orderIn = (structs, struct, message) => through(structs, struct, message, read);

// packages/rules/src/orders.ts
var MAX_ORDER_SECONDS = 15 * 60;
var APPROVAL_SECONDS = 60 * 60;
var TEAM_ORDER_SECONDS = 7 * 24 * 60 * 60;
var text = (name) => ({ name, type: "string" });
var number = (name) => ({ name, type: "uint256" });
var address = (name) => ({ name, type: "address" });
var bytes32 = (name) => ({ name, type: "bytes32" });
var SINGLE_USE = [bytes32("nonce"), number("deadline")];
var ORDER_TYPES = {
  IssueKey: {
    IssueKey: [text("agent"), address("wallet"), text("label"), number("expiresAt"), ...SINGLE_USE]
  },
  ApprovePayment: {
    ApprovePayment: [
      text("agent"),
      address("payee"),
      address("asset"),
      number("maxAmount"),
      text("site"),
      text("approvalId"),
      ...SINGLE_USE
    ]
  },
  Withdraw: {
    Withdraw: [address("wallet"), address("to"), address("asset"), number("amount"), ...SINGLE_USE]
  },
  SecondWallet: {
    SecondWallet: [address("owner"), address("second"), number("secondChain"), ...SINGLE_USE]
  },
  MoveOwner: { MoveOwner: [address("from"), address("to"), ...SINGLE_USE] },
  Passkeys: {
    Passkeys: [
      address("owner"),
      number("version"),
      { name: "passkeys", type: "Passkey[]" },
      ...SINGLE_USE
    ],
    Passkey: [text("name"), bytes32("x"), bytes32("y")]
  },
  PayoutAddress: {
    PayoutAddress: [address("owner"), number("version"), address("payout"), ...SINGLE_USE]
  },
  Resume: { Resume: [address("owner"), number("stoppedAt"), ...SINGLE_USE] },
  AllowPayeeAgain: { AllowPayeeAgain: [address("owner"), text("payee"), ...SINGLE_USE] },
  Budget: {
    Budget: [
      address("owner"),
      text("budgetId"),
      number("version"),
      text("name"),
      ...BUDGET_FIELDS.map((field) => number(field.name)),
      text("status"),
      text("agentsOut"),
      ...SINGLE_USE
    ]
  },
  Members: {
    Members: [
      address("owner"),
      number("version"),
      text("name"),
      number("threshold"),
      number("approvalAbove"),
      { name: "members", type: "Member[]" },
      ...SINGLE_USE
    ],
    Member: [text("name"), address("account"), number("chain"), text("role")]
  }
};
var ORDER_KINDS = [
  "AgentPolicy",
  ...Object.keys(ORDER_TYPES)
];
function readTypes(kind, order) {
  if (kind !== "AgentPolicy") return ORDER_TYPES[kind];
  const version = versionOf(order);
  return version === void 0 ? void 0 : policyTypes(version);
}
function typesOf(kind, order) {
  const types = readTypes(kind, order);
  if (types === void 0) throw new Error("the version of the policy document is malformed");
  return types;
}
var DOMAIN_TYPE = [text("name"), text("version"), number("chainId")];
var DOMAIN_STRUCTS = { EIP712Domain: DOMAIN_TYPE };
var REQUESTED_FORM = "readable";
var FORMS = [REQUESTED_FORM, "numbers"];
var DOMAIN_VERSIONS = { readable: "3", numbers: "2" };
var domainOf = (chainId, form) => ({ name: "Purser", version: DOMAIN_VERSIONS[form], chainId });
var formOfDomain = ({ version }) => FORMS.find((form) => DOMAIN_VERSIONS[form] === version);
function signedParts(kind, order, form) {
  const structs = typesOf(kind, order);
  if (form === "numbers") return { structs, message: order };
  const message = readableMessage(structs, kind, order);
  return { structs: readableStructs(structs), message };
}

// packages/rules/src/rules.ts
var payeeKey = ({ address: address2, site }) => `${address2.toLowerCase()} ${site}`;
function termsAt(payees) {
  const listed = new Map(payees.map((payee) => [payeeKey(payee), payee]));
  return (place) => listed.get(payeeKey(place)) ?? listed.get(payeeKey({ ...place, site: "" }));
}
var sitesOf = (payees) => new Set(payees.map(({ site }) => site).filter((site) => site !== ""));
var allowsMore = (fields, wanted, current) => fields.some((field) => field.kind.allowsMore(valueIn(wanted, field), valueIn(current, field)));
function loosens(current, wanted) {
  if (current.status !== "active" && wanted.status === "active") return true;
  if (current.status === "archived" && wanted.status !== "archived") return true;
  const reachable = sitesOf(current.payees);
  if (current.fetch === "sites" && wanted.payees.some(({ site }) => site && !reachable.has(site)))
    return true;
  const before = termsAt(current.payees);
  const after = termsAt(wanted.payees);
  return allowsMore(AGENT_FIELDS, wanted, current) || // An entry may also loosen by its removal: without its own terms, a site has those for everywhere.
  [...current.payees, ...wanted.payees].some((place) => payeeLoosens(before(place), after(place)));
}
function payeeLoosens(current, wanted) {
  if (wanted === void 0) return false;
  return current === void 0 || allowsMore(PAYEE_FIELDS, wanted, current);
}

// server/core/keccak.ts
import { keccak256 } from "viem";
var keccak = (bytes) => keccak256(bytes, "bytes");

// server/core/typed-data.ts
function typedDataDigest(domain, message) {
  const parts = [domain, message].map(
    ({ structs, name, value }) => hashStruct(structs, name, value)
  );
  const digest = keccak(Buffer.concat([Buffer.from([25, 1]), ...parts]));
  return `0x${Buffer.from(digest).toString("hex")}`;
}
var WORD = 32;
function hashStruct(structs, name, value) {
  const words = (structs[name] ?? []).map(
    (field) => wordOf(structs, field.type, value[field.name])
  );
  return keccak(Buffer.concat([typeHash(structs, name), ...words]));
}
function wordOf(structs, type, member) {
  if (type.endsWith("[]")) {
    const items = member;
    return keccak(Buffer.concat(items.map((item) => hashStruct(structs, type.slice(0, -2), item))));
  }
  if (type === "string") return keccak(Buffer.from(member));
  const digits = type === "uint256" ? BigInt(member).toString(16).padStart(64, "0") : member.slice(2);
  const word = Buffer.from(type === "address" ? `${"0".repeat(24)}${digits}` : digits, "hex");
  if (digits.length !== (type === "address" ? 40 : 64) || word.length !== WORD)
    throw new Error(`the order has a malformed ${type}, so it has no digest`);
  return word;
}
var typeHashes = /* @__PURE__ */ new WeakMap();
function typeHash(structs, name) {
  const known3 = typeHashes.get(structs) ?? /* @__PURE__ */ new Map();
  typeHashes.set(structs, known3);
  const found = known3.get(name);
  if (found) return found;
  const fields = structs[name] ?? [];
  const listed = fields.filter(({ type }) => type.endsWith("[]")).map(({ type }) => type.slice(0, -2));
  const written = [name, ...listed.toSorted()].map((struct) => {
    const members = (structs[struct] ?? []).map((field) => `${field.type} ${field.name}`);
    return `${struct}(${members.join(",")})`;
  });
  const hash = keccak(Buffer.from(written.join("")));
  known3.set(name, hash);
  return hash;
}

// server/core/orders.ts
function orderDigest(kind, order, chainId, form) {
  const { structs, message } = signedParts(kind, order, form);
  return typedDataDigest(
    { structs: DOMAIN_STRUCTS, name: "EIP712Domain", value: domainOf(chainId, form) },
    { structs, name: kind, value: message }
  );
}
function orderInTypedData(kind, { domain, message }) {
  const form = formOfDomain(domain);
  if (form === void 0) return void 0;
  if (form === "numbers") return readOrder(kind, message);
  const order = orderIn(typesOf(kind, message), kind, message);
  return order && readOrder(kind, order);
}
function readOrder(kind, wire) {
  const types = readTypes(kind, wire);
  if (types === void 0) return void 0;
  const struct = (name, value) => {
    const read2 = {};
    for (const field of types[name] ?? []) {
      const member = value[field.name];
      const found = member === void 0 ? void 0 : one(field.type, member);
      if (found === void 0) return void 0;
      read2[field.name] = found;
    }
    return read2;
  };
  const one = (type, member) => {
    if (type.endsWith("[]")) {
      if (!Array.isArray(member)) return void 0;
      const items = member.map((item) => struct(type.slice(0, -2), item));
      return items.includes(void 0) ? void 0 : items;
    }
    const given = String(member);
    if (type === "uint256") return parseAtomic(given)?.toString();
    if (type === "bytes32")
      return /^0x[0-9a-fA-F]{64}$/.test(given) ? given.toLowerCase() : void 0;
    if (type !== "address") return given;
    return /^0x[0-9a-fA-F]{40}$/.test(given) ? getAddress(given.toLowerCase()) : void 0;
  };
  return struct(kind, wire);
}
var CONNECTION_LABEL = "Connection to ";

// server/core/passkeys.ts
import { createHash, createPublicKey, verify } from "node:crypto";

// packages/paywall/src/foreign-json.ts
var isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// packages/rules/src/passkeys.ts
var PASSKEYS_CHAIN = 2147483647;
var MAGIC = "706173736b657931";
var PREFIX = `0x${MAGIC}`;
var WORD2 = 64;
var NUMBERS = 4;
var LENGTH_DIGITS = 4;
var HEAD = MAGIC.length + NUMBERS * WORD2 + LENGTH_DIGITS;
var isPasskeySignature = (signature) => signature.slice(0, PREFIX.length).toLowerCase() === PREFIX;
function readPasskeySignature(signature) {
  const digits = signature.slice(2).toLowerCase();
  if (!isPasskeySignature(signature) || digits.length < HEAD || !/^(?:[0-9a-f]{2})+$/.test(digits))
    return void 0;
  const [x = "", y = "", r = "", s = ""] = Array.from(
    { length: NUMBERS },
    (_, index) => `0x${digits.slice(MAGIC.length + index * WORD2).slice(0, WORD2)}`
  );
  const length = Number.parseInt(digits.slice(HEAD - LENGTH_DIGITS, HEAD), 16);
  const rest = toBytes(digits.slice(HEAD));
  if (length > rest.length) return void 0;
  const authenticatorData = rest.subarray(0, length);
  return { x, y, r, s, authenticatorData, clientData: rest.subarray(length) };
}
var toBytes = (digits) => Uint8Array.from(
  { length: digits.length / 2 },
  (_, index) => Number.parseInt(digits.slice(index * 2, index * 2 + 2), 16)
);

// server/core/passkeys.ts
var bytesOf = (...words) => Buffer.concat(words.map((word) => Buffer.from(word.slice(2), "hex")));
var base64Url = (hex) => Buffer.from(hex.slice(2), "hex").toString("base64url");
var sha256 = (bytes) => createHash("sha256").update(bytes).digest();
var addressOfPasskey = ({ x, y }) => `0x${Buffer.from(keccak(bytesOf(x, y)).subarray(12)).toString("hex")}`;
var isSameKey = (one, other) => one.x === other.x && one.y === other.y;
var FLAGS_AT = 32;
var COUNT_AT = 33;
var MIN_DATA_BYTES = 37;
var PRESENT_AND_VERIFIED = 5;
function passkeyThatSigned({ hash, signature }, places) {
  const read2 = readPasskeySignature(signature);
  if (!read2) return void 0;
  const { x, y, r, s, authenticatorData, clientData } = read2;
  const isRight = saysRight(clientData, hash, places) && authenticatorData.length >= MIN_DATA_BYTES && ((authenticatorData[FLAGS_AT] ?? 0) & PRESENT_AND_VERIFIED) === PRESENT_AND_VERIFIED && (!places || sha256(places.domain).equals(authenticatorData.subarray(0, FLAGS_AT)));
  const signed = Buffer.concat([authenticatorData, sha256(clientData)]);
  if (!isRight || !isSignedBy({ x, y }, signed, bytesOf(r, s))) return void 0;
  return { key: { x, y }, count: Buffer.from(authenticatorData).readUInt32BE(COUNT_AT) };
}
function saysRight(clientData, hash, places) {
  let said;
  try {
    said = JSON.parse(Buffer.from(clientData).toString("utf8"));
  } catch {
    return false;
  }
  return isRecord(said) && said["type"] === "webauthn.get" && said["challenge"] === base64Url(hash) && (said["crossOrigin"] ?? false) === false && (!places || typeof said["origin"] === "string" && places.origins.has(said["origin"]));
}
function isSignedBy({ x, y }, signed, signature) {
  try {
    const jwk = { kty: "EC", crv: "P-256", x: base64Url(x), y: base64Url(y) };
    const key = createPublicKey({ key: jwk, format: "jwk" });
    return verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, signature);
  } catch {
    return false;
  }
}

// packages/rules/src/teams.ts
var TEAMS_CHAIN = 2147483646;
var MAX_MEMBERS = 50;
var ROLES = ["viewer", "approver", "admin"];
var isRole = (text2) => ROLES.includes(text2);
var NOBODY = `0x${"0".repeat(40)}`;
var MAX_CHAIN = 2147483647n;
function faultOfMembers({ threshold, members }, before) {
  if (members.length === 0) return "has no members";
  if (members.length > MAX_MEMBERS) return `has more than ${MAX_MEMBERS} members`;
  const accounts = members.map(({ account }) => account.toLowerCase());
  if (new Set(accounts).size < accounts.length) return "names a member twice";
  for (const { account, chain, role } of members) {
    if (account.toLowerCase() === NOBODY) return "names the zero address";
    if (!isRole(role)) return `has the unknown role ${role}`;
    if (BigInt(chain) === BigInt(TEAMS_CHAIN)) return "names a team as a member";
    if (BigInt(chain) > MAX_CHAIN) return "has an unknown chain";
    if (role !== "viewer" && ![0, PASSKEYS_CHAIN].includes(Number(chain)))
      return "names a contract account as approver or admin: it can only be a viewer";
    const known3 = before?.members.find(({ address: address2 }) => address2 === account.toLowerCase());
    if (known3 && decides(known3) && known3.chainId !== Number(chain))
      return "changes what kind of account a member has";
  }
  const admins = members.filter(({ role }) => role === "admin").length;
  if (admins === 0) return "has no admin";
  if (BigInt(threshold) === 0n) return "needs at least one signature";
  if (BigInt(threshold) > BigInt(admins))
    return `needs the signatures of ${threshold} admins, and has ${admins}`;
  return void 0;
}
var listOf2 = (order) => ({
  version: Number(order.version),
  name: order.name,
  threshold: Number(order.threshold),
  approvalAboveAtomic: BigInt(order.approvalAbove),
  members: order.members.map(({ name, account, chain, role }) => ({
    name,
    address: account.toLowerCase(),
    chainId: Number(chain),
    role
  }))
});
function purposeOf(kind, order) {
  if (kind === "ApprovePayment")
    return {
      kind: "approval",
      amountAtomic: BigInt(order.maxAmount)
    };
  if (kind === "Members") return { kind: "members", next: listOf2(order) };
  return { kind: "rules" };
}
var decides = ({ role }) => role !== "viewer";
var newlyNamed = (before, next) => next.members.filter((member) => {
  const known3 = before?.members.find(({ address: address2 }) => address2 === member.address);
  return decides(member) && !(known3 && decides(known3));
});
function signersFor(list, purpose) {
  const voters = (list?.members ?? []).filter(
    ({ role }) => purpose.kind === "approval" ? role !== "viewer" : role === "admin"
  );
  return purpose.kind === "members" ? [...voters, ...newlyNamed(list, purpose.next)] : voters;
}
function progressOf(list, purpose, signed) {
  const named = purpose.kind === "members" ? newlyNamed(list, purpose.next) : [];
  const missing = named.map(({ address: address2 }) => address2).filter((address2) => !signed.has(address2));
  const isVoter = ({ address: address2, role }) => signed.has(address2) && (role === "admin" || purpose.kind === "approval" && role === "approver");
  const votes = (list?.members ?? []).filter(isVoter).length;
  const isSmall = purpose.kind === "approval" && list && purpose.amountAtomic <= list.approvalAboveAtomic;
  const threshold = isSmall ? 1 : list?.threshold ?? 0;
  const collected = signersFor(list, purpose).map(({ address: address2 }) => address2).filter((address2) => signed.has(address2));
  const needed = threshold + named.length;
  return { isEnough: votes >= threshold && missing.length === 0, collected, needed, missing };
}
var MAGIC2 = "7465616d31";
var PREFIX2 = `0x${MAGIC2}`;
var ADDRESS_DIGITS = 40;
var LENGTH_DIGITS2 = 4;
var MAX_OWN_BYTES = 1024;
var isTeamSignature = (signature) => signature.slice(0, PREFIX2.length).toLowerCase() === PREFIX2;
function readTeamSignature(signature) {
  const digits = signature.slice(2).toLowerCase();
  if (!isTeamSignature(signature) || !/^(?:[0-9a-f]{2})+$/.test(digits)) return void 0;
  const found = [];
  let at = MAGIC2.length;
  while (at < digits.length) {
    const address2 = `0x${digits.slice(at, at + ADDRESS_DIGITS)}`;
    const from = at + ADDRESS_DIGITS + LENGTH_DIGITS2;
    const length = Number.parseInt(digits.slice(from - LENGTH_DIGITS2, from), 16);
    const end = from + length * 2;
    const last = found.at(-1);
    const isRight = length > 0 && length <= MAX_OWN_BYTES && end <= digits.length;
    if (!isRight || last && last.address >= address2) return void 0;
    found.push({ address: address2, signature: `0x${digits.slice(from, end)}` });
    at = end;
  }
  return found.length === 0 || found.length > 2 * MAX_MEMBERS ? void 0 : found;
}

// server/core/teams.ts
var addressOfTeam = (digest) => `0x${digest.slice(-40)}`;
var hasNoWallet = (chainId) => chainId === PASSKEYS_CHAIN || chainId === TEAMS_CHAIN;

// server/plugins/audit/authority.ts
import { zeroAddress } from "viem";

// server/core/payout.ts
var PAYOUT_WAIT_SECONDS = 24 * 60 * 60;
function payoutAt(orders, nowSeconds) {
  const inOrder = orders.toSorted((a, b) => Number(a.version) - Number(b.version));
  if (inOrder.some(({ version }, index) => version !== String(index + 1))) return void 0;
  let found;
  for (const { payout, deadline } of inOrder) {
    const address2 = payout.toLowerCase();
    const current = found && settled(found, BigInt(deadline));
    const fromSeconds = BigInt(deadline) + BigInt(PAYOUT_WAIT_SECONDS);
    const isWaiting = current !== void 0 && current.address !== address2;
    found = { ...current ?? { address: address2 }, next: isWaiting ? { address: address2, fromSeconds } : null };
  }
  return found && settled(found, nowSeconds);
}
var settled = (payout, nowSeconds) => payout.next && payout.next.fromSeconds <= nowSeconds ? { address: payout.next.address, sinceSeconds: payout.next.fromSeconds, next: null } : payout;

// server/plugins/audit/budgets.ts
var OTHER = "differs from its signed order";
var UNFOUNDED = "does not follow from the budget in force before it";
function limitsIn(facts) {
  return Object.fromEntries(
    BUDGET_FIELDS.map(({ name, kind }) => {
      const read2 = kind.readWire(facts[name]);
      if (!read2.ok) throw new RangeError(`${name} ${read2.reason}`);
      return [name, read2.value];
    })
  );
}
var isSame = (left, right) => BUDGET_FIELDS.every(({ name }) => left[name] === right[name]);
function isSigned(after, order) {
  const removed = after["removed"] ?? [];
  const out = order.agentsOut === "" ? 0 : order.agentsOut.split(", ").length;
  return after["budgetId"] === order.budgetId && after["name"] === order.name && String(after["version"]) === order.version && (Array.isArray(removed) ? agentsText(removed) === order.agentsOut : removed === out) && BUDGET_FIELDS.every(({ name, kind }) => kind.sign(limitsIn(after)[name]) === order[name]);
}
var BudgetFacts = class {
  #limits = /* @__PURE__ */ new Map();
  /** Agents and budgets came from another owner, whose audit has their history. */
  #isReceived = false;
  moved(action) {
    if (action === "owner.received") this.#isReceived = true;
    else this.#limits.clear();
  }
  faultOf({ action, before, after }, order) {
    const facts = after ?? {};
    const id = String(facts["budgetId"]);
    const known3 = this.#limits.get(id);
    const wanted = limitsIn(facts);
    if (action === "budget.created") {
      if (known3) return UNFOUNDED;
      this.#limits.set(id, wanted);
      return void 0;
    }
    const current = known3 ?? (this.#isReceived && before !== null ? limitsIn(before) : void 0);
    if (current === void 0 || before !== null && !isSame(limitsIn(before), current))
      return UNFOUNDED;
    this.#limits.set(id, wanted);
    if (order) return order.status === "active" && isSigned(facts, order) ? void 0 : OTHER;
    return loosensBudget(current, wanted) || "removed" in facts ? `is ${action} without a signed order, and it loosens the budget` : void 0;
  }
  /** It needs the order, which the caller has checked. */
  archivedFault({ after }, order) {
    this.#limits.delete(order.budgetId);
    return order.status === "archived" && isSigned(after ?? {}, order) ? void 0 : OTHER;
  }
};

// server/plugins/audit/authority.ts
var SIGNED_AS = {
  "session.created": "message",
  "policy.signed": "AgentPolicy",
  "key.signed": "IssueKey",
  "payment.approved": "ApprovePayment",
  "withdrawal.ordered": "Withdraw",
  "second.named": "SecondWallet",
  "passkeys.signed": "Passkeys",
  "payout.named": "PayoutAddress",
  "members.signed": "Members",
  "owner.moved": "MoveOwner",
  "owner.received": "MoveOwner",
  "resume.signed": "Resume",
  "allow_again.signed": "AllowPayeeAgain",
  "budget.signed": "Budget"
};
var AFTER_ORDER = {
  "agent.created": "AgentPolicy",
  "agent.resumed": "AgentPolicy",
  "key.created": "IssueKey",
  "key.rotated": "IssueKey",
  "connection.granted": "IssueKey",
  "approval.granted": "ApprovePayment",
  "owner.resumed": "Resume",
  "owner.payee_allowed": "AllowPayeeAgain",
  "budget.archived": "Budget"
};
var OTHER2 = "differs from its signed order";
var UNFOUNDED2 = "does not follow from the rules in force before it";
var Authority = class {
  /** The digests of what was signed. */
  used = /* @__PURE__ */ new Set();
  #agents = /* @__PURE__ */ new Map();
  #withdrawals = /* @__PURE__ */ new Map();
  #budgets = new BudgetFacts();
  /** The order of the previous entry, until the entry that it permits. */
  #open;
  /** The recovery wallet that the owner named last. */
  second;
  /** The passkeys that the owner listed last; undefined before the first list. */
  passkeys;
  /** The members of a team, as its newest list names them. */
  members;
  #lists = 0;
  #payouts = [];
  /** Where passkeys and the recovery wallet may withdraw to. */
  homeOf({ owner, ownerChainId, at }) {
    if (!hasNoWallet(ownerChainId)) return owner;
    return payoutAt(this.#payouts, BigInt(Math.floor(Date.parse(at) / 1e3)))?.address;
  }
  /** Undefined if the entry is valid. The signer and the digest of `signed` were verified before. */
  faultOf(body, signed) {
    const { action } = body;
    const needed = SIGNED_AS[action];
    if (needed !== signed?.kind)
      return signed === void 0 ? `is ${action} without a signature` : `is ${action}, with the signature of a different action`;
    const open = this.#open;
    this.#open = void 0;
    try {
      return signed ? this.#signedFault(body, signed) : this.#unsignedFault(body, open);
    } catch {
      return "has content that cannot be read";
    }
  }
  #signedFault(body, signed) {
    if (this.used.has(signed.digest)) return "has a signature that was used before";
    this.used.add(signed.digest);
    if (signed.kind === "message") return signInFault(body, signed);
    const { order, kind, chainId } = signed;
    const after = body.after ?? {};
    const { agent = body.agentId } = order;
    const isSame2 = agent === body.agentId && (kind === "MoveOwner" || after["nonce"] === order.nonce);
    if (!isSame2) return OTHER2;
    if ("wallet" in order && !this.#hasWallet(body.agentId, order.wallet)) return OTHER2;
    if (kind === "AgentPolicy") return this.#usePolicy(body, signed);
    if (kind === "Withdraw") {
      const { to, amount: amountAtomic, nonce } = order;
      const facts = { to: to.toLowerCase(), amountAtomic, network: `eip155:${chainId}`, nonce };
      this.#withdrawals.set(asText(after["paymentId"]), facts);
      return holds(facts, after) ? void 0 : OTHER2;
    }
    if (kind === "SecondWallet") {
      this.second = { address: order.second.toLowerCase(), chainId: Number(order.secondChain) };
      return isAddress(order.owner, body.owner) ? void 0 : OTHER2;
    }
    if (kind === "Members") return this.#membersFault(body, signed);
    if (kind === "Passkeys" || kind === "PayoutAddress") return this.#listFault(body, signed);
    if (kind === "MoveOwner") return this.#move(body, order);
    const isOfOwner = kind === "Resume" || kind === "AllowPayeeAgain" || kind === "Budget";
    if (isOfOwner && !isAddress(order.owner, body.owner)) return OTHER2;
    this.#open = signed;
    return void 0;
  }
  /** The signatures under it were counted before, with the members of the list that it replaces. */
  #membersFault({ owner }, { order, digest }) {
    const before = this.members;
    const isOwn = before ? isAddress(order.owner, owner) : order.owner === zeroAddress && addressOfTeam(digest) === owner;
    if (!isOwn || order.version !== String((before?.version ?? 0) + 1)) return OTHER2;
    const fault = faultOfMembers(order, before);
    if (fault !== void 0) return `lists members that ${fault}`;
    this.members = listOf2(order);
    return void 0;
  }
  #listFault({ owner }, signed) {
    if (!isAddress(signed.order.owner, owner)) return OTHER2;
    if (signed.kind === "PayoutAddress") {
      this.#payouts.push(signed.order);
      return signed.order.version === String(this.#payouts.length) ? void 0 : OTHER2;
    }
    this.#lists += 1;
    this.passkeys = signed.order.passkeys;
    return signed.order.version === String(this.#lists) ? void 0 : OTHER2;
  }
  #usePolicy({ agentId, after }, signed) {
    if (after?.["version"] !== Number(signed.order.version)) return OTHER2;
    const { payees, rules, hasUnnamedRemovals, ...known3 } = this.#agent(agentId);
    const isNew = signed.order.version === "1";
    const isKnown = isNew || rules !== void 0 && hasUnnamedRemovals !== true;
    this.#agents.set(agentId ?? "", {
      ...known3,
      ...factsOf(signed.order),
      ...isKnown && { formerPayees: payees }
    });
    this.#open = signed;
    return void 0;
  }
  #move({ action, owner, before, after }, order) {
    const agents = after?.["agents"] ?? [];
    const isSame2 = before?.["owner"] === order.from && after?.["owner"] === order.to;
    const own = action === "owner.moved" ? order.from : order.to;
    if (!isSame2 || !isAddress(own, owner)) return OTHER2;
    for (const id of agents)
      if (action === "owner.moved") this.#agents.delete(id);
      else this.#agents.set(id, { isReceived: true, status: "paused", payees: [] });
    this.#budgets.moved(action);
    return void 0;
  }
  #unsignedFault(body, open) {
    const { action, agentId, after } = body;
    const needed = AFTER_ORDER[action];
    const order = open && "order" in open ? open.order : void 0;
    const isOpen = order !== void 0 && (order.agent ?? null) === agentId;
    if (needed !== void 0) {
      if (!isOpen || open?.kind !== needed) return `is ${action} without a signed order`;
      return this.#permittedFault(body, open);
    }
    if (/^(agent\.updated$|allowlist\.)/.test(action)) {
      if (isOpen) this.#open = open;
      return this.#changeFault(body, isOpen ? open : void 0);
    }
    if (action === "budget.created" || action === "budget.changed") {
      const fault = this.#budgets.faultOf(body, open?.kind === "Budget" ? open.order : void 0);
      if (fault) return fault;
    }
    if (action === "agent.paused" || action === "agent.archived") {
      const known3 = this.#agents.get(agentId ?? "");
      if (known3) known3.status = action === "agent.paused" ? "paused" : "archived";
    }
    if (action.startsWith("withdrawal.")) {
      const ordered = this.#withdrawals.get(asText(after?.["paymentId"]));
      if (ordered === void 0)
        return this.#agent(agentId).isReceived ? void 0 : `is ${action} without an order`;
      return holds(ordered, after ?? {}) ? void 0 : "differs from its order";
    }
    return void 0;
  }
  /** Checks an action that the order of the previous entry permits. */
  #permittedFault(body, open) {
    const { action, agentId } = body;
    const after = body.after ?? {};
    if (open.kind === "IssueKey") return keyFault(action, after, open.order);
    if (open.kind === "ApprovePayment") {
      const { approvalId, payee, maxAmount, site, nonce: orderNonce } = open.order;
      const amount = formatAtomic(BigInt(maxAmount));
      const facts2 = { approvalId, payee, amount, site: site || null, orderNonce };
      return holds({ ...facts2, network: `eip155:${open.chainId}` }, after) ? void 0 : OTHER2;
    }
    if (open.kind === "Resume") return void 0;
    if (open.kind === "AllowPayeeAgain")
      return body.before?.["payee"] === open.order.payee ? void 0 : OTHER2;
    if (open.kind === "Budget") return this.#budgets.archivedFault(body, open.order);
    if (open.kind !== "AgentPolicy") return OTHER2;
    const agent = this.#agent(agentId);
    agent.status = "active";
    if (action === "agent.resumed") return after["status"] === "active" ? void 0 : OTHER2;
    const { wallet: walletAddress, version } = open.order;
    const facts = { walletAddress, network: `eip155:${open.chainId}` };
    const isListed2 = "allowlist" in after ? isSameList(after["allowlist"], agent.payees) : saysChange(body, difference([], agent.payees), open.digest);
    const isSame2 = holds(facts, after) && holdsRules(agent.rules ?? {}, after) && isListed2;
    return isSame2 && version === "1" && after["status"] === "active" ? void 0 : OTHER2;
  }
  /** A change must equal the policy of the previous entry, or only tighten the rules in force. */
  #changeFault(body, order) {
    const { action, agentId, before, after } = body;
    const agent = this.#agents.get(agentId ?? "");
    if (!agent) return "is about an agent that never belonged to this owner";
    const { rules, payees } = agent;
    if (rules === void 0) return void 0;
    if (action === "agent.updated") {
      if (order && holds(after ?? {}, rules)) return void 0;
      const isFrom = holds(before ?? {}, rules) && Object.keys(after ?? {}).every((key) => key in rules);
      const wanted = { ...agent, rules: { ...rules, ...after } };
      return isFrom ? this.#tighten(body, { from: agent, to: wanted }) : UNFOUNDED2;
    }
    if (order && isSignedChange(body, agent, order)) return void 0;
    const change = changeIn(body);
    if (change === void 0) {
      if (!countsRemovals(body)) return UNFOUNDED2;
      this.#agents.set(agentId ?? "", { ...agent, hasUnnamedRemovals: true });
      return void 0;
    }
    const from = agent.hasUnnamedRemovals ? change.before : payees;
    const texts = new Set(from.map(textOf));
    if (!change.before.every((payee) => texts.has(textOf(payee)))) return UNFOUNDED2;
    const gone = new Set(change.before.map(keyOf));
    const kept = from.filter((payee) => !gone.has(keyOf(payee)));
    const to = [...kept, ...change.after];
    if (new Set(to.map(keyOf)).size < to.length) return UNFOUNDED2;
    return this.#tighten(body, { from: { ...agent, payees: from }, to: { ...agent, payees: to } });
  }
  #tighten({ action, agentId, after }, { from, to }) {
    const isRemoval = action === "allowlist.removed" && listIn(after).length === 0;
    if (!isRemoval && loosens(rulesOf(from), rulesOf(to)))
      return `is ${action} without a signed order, and it loosens the rules`;
    this.#agents.set(agentId ?? "", to);
    return void 0;
  }
  #agent(id) {
    return this.#agents.get(id ?? "") ?? { status: "paused", payees: [] };
  }
  /** An agent keeps its wallet forever. */
  #hasWallet(id, wallet) {
    const agent = this.#agent(id);
    const isSame2 = (agent.wallet ?? wallet) === wallet;
    this.#agents.set(id ?? "", { ...agent, wallet });
    return isSame2;
  }
};
var SIGN_IN = / wants you to sign in with your Ethereum account:$/;
var PASSKEY_SIGN_IN = /^Sign in to Purser at \S+ with a passkey\.\n\nNonce: [A-Za-z0-9]+$/;
function signInFault({ actor, proof }, { message, signer }) {
  const [first = "", address2 = ""] = message.split("\n");
  const isByPasskey = proof?.kind === "message" && isPasskeySignature(proof.signature);
  const isSignIn = isByPasskey ? PASSKEY_SIGN_IN.test(message) : SIGN_IN.test(first) && isAddress(address2, signer);
  return isSignIn && isAddress(actor, signer) ? void 0 : "has a signature that is not of a sign-in";
}
function keyFault(action, after, order) {
  const isConnection = order.label.startsWith(CONNECTION_LABEL);
  const isSame2 = after["label"] === order.label && after["expiresAt"] === TIME.wire(readOptional(order.expiresAt));
  return isSame2 && isConnection === (action === "connection.granted") ? void 0 : OTHER2;
}
var isAddress = (left, right) => left.toLowerCase() === right.toLowerCase();
var holds = (facts, other) => Object.entries(facts).every(([name, value]) => other[name] === value);
var holdsRules = ({ name, ...rules }, other) => other["name"] === name && AGENT_FIELDS.every((field) => {
  const noted2 = field.name in other || field.since === 1 ? other[field.name] : unsetOf(field);
  return noted2 === rules[field.name];
});
var unsetOf = ({ kind }) => kind.wire(kind.unset);
function factsOf(order) {
  const rules = rulesOfPolicy(order);
  return {
    rules: { name: order.name, ...settingsOnWire(AGENT_FIELDS, rules) },
    payees: rules.payees.map((payee) => ({
      address: payee.address,
      label: payee.label,
      site: payee.site,
      ...settingsOnWire(PAYEE_FIELDS, payee)
    }))
  };
}
function asText(value) {
  if (typeof value !== "string") throw new TypeError("a field of an entry is not text");
  return value;
}
var addressOf = ({ address: address2 }) => asText(address2).toLowerCase();
var keyOf = (payee) => payeeKey({ address: addressOf(payee), site: asText(payee["site"]) });
var textOf = (payee) => JSON.stringify([
  addressOf(payee),
  payee["label"],
  payee["site"],
  ...PAYEE_FIELDS.map(
    (field) => field.name in payee || field.since === 1 ? payee[field.name] : unsetOf(field)
  )
]);
function difference(before, after) {
  const [old, now] = [before, after].map((list) => new Set(list.map(textOf)));
  return {
    before: before.filter((payee) => !now.has(textOf(payee))),
    after: after.filter((payee) => !old.has(textOf(payee)))
  };
}
function listIn(side) {
  if (side === null) return [];
  if ("address" in side) return [side];
  return side["payees"] ?? side["allowlist"] ?? [];
}
var isNamed = ({ before, after }) => [before, after].some(
  (side) => ["address", "payees", "allowlist"].some((name) => name in (side ?? {}))
);
function changeIn(body) {
  if (!isNamed(body)) return void 0;
  const [before, after] = [listIn(body.before), listIn(body.after)];
  if ("allowlist" in (body.after ?? {})) return { before, after };
  return hasCounts(body, { before, after }) ? { before, after } : void 0;
}
var COUNTS = ["added", "removed", "changed"];
function countsOf({ before, after }) {
  const known3 = new Set(before.map(keyOf));
  const changed = after.filter((payee) => known3.has(keyOf(payee))).length;
  return { added: after.length - changed, removed: before.length - changed, changed };
}
function hasCounts({ before, after }, change) {
  if ([before, after].some((side) => "address" in (side ?? {}))) return true;
  const counts = countsOf(change);
  return COUNTS.every((name) => (after?.[name] ?? 0) === counts[name]);
}
var countsRemovals = ({ action, before, after }) => action !== "allowlist.added" && before === null && after?.["added"] === void 0 && after?.["order"] === void 0 && [after?.["removed"], after?.["changed"]].some((count) => Number.isSafeInteger(count));
function saysChange(body, change, digest) {
  const { before, after } = body;
  const isSame2 = !isNamed(body) || isSameList(listIn(before), change.before) && isSameList(listIn(after), change.after);
  return isSame2 && hasCounts(body, change) && after?.["order"] === digest;
}
function isSignedChange(body, { payees, formerPayees }, { digest }) {
  const { action, before, after } = body;
  if ("allowlist" in (after ?? {})) return isSameList(listIn(after), payees);
  if (action === "allowlist.replaced") {
    if (formerPayees) return saysChange(body, difference(formerPayees, payees), digest);
    const texts = new Set(payees.map(textOf));
    return after?.["order"] === digest && listIn(after).every((payee) => texts.has(textOf(payee)));
  }
  const [gone, now] = [listIn(before), listIn(after)];
  if (now.length === 0)
    return gone.every((one) => payees.every((payee) => keyOf(payee) !== keyOf(one)));
  return now.every((one) => payees.some((payee) => textOf(payee) === textOf(one)));
}
function isSameList(list, payees) {
  const texts = (all) => all.map(textOf).toSorted().join("\n");
  return Array.isArray(list) && texts(list) === texts(payees);
}
var settingsOfFacts = (fields, facts) => settingsFromWire(fields, facts, ({ name }, reason) => {
  throw new RangeError(`${name} ${reason}`);
});
var rulesOf = ({ status, rules = {}, payees }) => ({
  ...settingsOfFacts(AGENT_FIELDS, rules),
  status,
  payees: payees.map((payee) => ({
    ...settingsOfFacts(PAYEE_FIELDS, payee),
    address: addressOf(payee),
    label: asText(payee["label"]),
    site: asText(payee["site"])
  }))
});

// server/plugins/audit/verify.ts
async function verifyChain(rows, noted2 = []) {
  let head = { seq: 0, hash: "0".repeat(64) };
  let ownerId = null;
  let owner;
  const counted = { signatures: 0, byContract: 0 };
  const authority = new Authority();
  for await (const row of rows) {
    const no = (why) => ({ ok: false, seq: head.seq + 1, why });
    const broken = linkFault(row, head);
    if (broken !== void 0) return no(broken);
    const body = readBody(row.body);
    if (body === void 0) return no("its text is not a valid entry");
    ownerId ??= body.ownerId;
    owner ??= { address: body.owner, chainId: body.ownerChainId };
    if (body.owner !== owner.address || body.ownerChainId !== owner.chainId)
      return no("it names a different owner wallet");
    const read2 = readSigned(row, body.proof);
    const fault = bodyFault(row, body, ownerId) ?? ("fault" in read2 ? read2.fault : void 0) ?? await signersFault(body, read2.signed, authority, counted) ?? authority.faultOf(body, read2.signed);
    if (fault !== void 0) return no(fault);
    head = { seq: row.seq, hash: row.hash };
    if (noted2.some(({ seq, hash }) => seq === row.seq && hash !== row.hash))
      return otherHash(row.seq);
  }
  const { signatures, byContract } = counted;
  const { used: signed } = authority;
  return cutFault(head, noted2) ?? { ok: true, head, signatures, byContract, ownerId, signed };
}
var otherHash = (seq) => ({
  ok: false,
  seq,
  why: "its hash differs from the one noted earlier"
});
function cutFault(head, noted2) {
  const last = Math.max(0, ...noted2.map(({ seq }) => seq));
  return last > head.seq ? {
    ok: false,
    seq: head.seq + 1,
    why: `is missing: entry ${last} was noted earlier, and the chain ends before it`
  } : void 0;
}
function linkFault(row, before) {
  if (row.seq !== before.seq + 1) return `is missing: entry ${row.seq} is in its place`;
  if (row.prevHash !== before.hash) return "does not follow the entry before it";
  const hash = createHash2("sha256").update(Buffer.from(row.prevHash, "hex")).update(row.body, "utf8");
  return hash.digest("hex") === row.hash ? void 0 : "its hash does not match its text";
}
function readBody(text2) {
  try {
    const body = JSON.parse(text2);
    return typeof body === "object" && body !== null ? body : void 0;
  } catch {
    return void 0;
  }
}
function bodyFault({ seq, columns }, body, ownerId) {
  if (body.seq !== seq) return `its text belongs to entry ${body.seq}`;
  if (body.ownerId !== ownerId) return "its text belongs to a different owner's chain";
  if (columns === void 0) return void 0;
  const isSame2 = columns.id === body.id && columns.agentId === body.agentId && columns.action === body.action && // A JavaScript date has milliseconds, the text microseconds.
  columns.at.toISOString().slice(0, 23) === body.at.slice(0, 23);
  return isSame2 ? void 0 : "its columns differ from its text";
}
var BY_SECOND = /* @__PURE__ */ new Set(["session.created", "withdrawal.ordered"]);
async function signersFault(body, signed, authority, counted) {
  const { proof, action, owner, ownerChainId } = body;
  if (proof === null || signed === void 0) return void 0;
  const signers = proof.kind === "message" ? [proof] : proof.signers;
  const is = (wallet) => (by) => by.signer === wallet?.address && by.chainId === wallet.chainId;
  const isOwners = signers.some(is({ address: owner, chainId: ownerChainId }));
  const isSeconds = BY_SECOND.has(action) && signers.some(is(authority.second));
  if (!isOwners && !isSeconds) return "its owner did not sign it";
  const isRestricted = ({ signature }) => isPasskeySignature(signature) || isTeamSignature(signature);
  const isByWallet = isOwners && !signers.some(isRestricted);
  if (!isByWallet && signed.kind === "Withdraw") {
    if (signed.order.to.toLowerCase() !== authority.homeOf(body))
      return "only the owner's wallet can withdraw to another address";
  }
  const parties = signed.kind === "MoveOwner" ? [signed.order.from, signed.order.to] : [];
  if (parties.some((party) => !signers.some(({ signer }) => signer === party.toLowerCase())))
    return "both wallets must sign it";
  for (const by of signers) {
    const { signer, chainId, signature } = by;
    counted.signatures += 1;
    const isOwn = is({ address: owner, chainId: ownerChainId })(by);
    if (chainId === TEAMS_CHAIN) {
      const fault = isOwn ? await teamFault(signed, signature, authority, counted) : await partsFault(signed, signature, counted);
      if (fault !== void 0) return fault;
      if (!isOwn) counted.byContract += 1;
      continue;
    }
    if (isPasskeySignature(signature)) {
      const key = passkeyThatSigned({ hash: signed.digest, signature })?.key;
      if (key && isListed(key, signer, isOwn ? authority.passkeys : void 0)) continue;
      if (!key || isOwn) return `its signature is not by a passkey of ${signer}`;
      counted.byContract += 1;
      continue;
    }
    if (chainId !== 0) counted.byContract += 1;
    else if (await recovered(signed.digest, signature) !== signer)
      return `its signature is not by ${signer}`;
  }
  return void 0;
}
async function teamFault(signed, signature, { members: list }, counted) {
  const purpose = signed.kind === "message" ? { kind: "rules" } : purposeOf(signed.kind, signed.order);
  const parts = readTeamSignature(signature) ?? [];
  const allowed = new Set(signersFor(list, purpose).map(({ address: address2 }) => address2));
  const other = parts.find(({ address: address2 }) => !allowed.has(address2));
  if (other) return `it is signed by ${other.address}, whose role does not allow it`;
  const fault = await partsFault(signed, signature, counted);
  if (fault !== void 0) return fault;
  const progress = progressOf(list, purpose, new Set(parts.map(({ address: address2 }) => address2)));
  return progress.isEnough ? void 0 : `${progress.collected.length} members signed it, and it needs ${progress.needed}`;
}
async function partsFault(signed, signature, counted) {
  const parts = readTeamSignature(signature);
  if (!parts) return "its signature is not one of a team";
  const hash = signed.digest;
  for (const { address: address2, signature: own } of parts) {
    if (!isPasskeySignature(own)) {
      if (await recovered(hash, own) !== address2) return `its signature is not by ${address2}`;
      continue;
    }
    const by = passkeyThatSigned({ hash, signature: own });
    if (!by) return `its signature is not by ${address2}`;
    if (addressOfPasskey(by.key) !== address2) counted.byContract += 1;
  }
  return void 0;
}
var isListed = (key, owner, listed) => listed ? listed.some((one) => isSameKey(one, key)) : addressOfPasskey(key) === owner;
function readSigned(row, proof) {
  if (proof === null) return { signed: void 0 };
  if (proof.kind === "message") {
    const { kind, message, signer } = proof;
    return { signed: { kind, message, signer, digest: hashMessage(message) } };
  }
  const beside = proof.order ?? row.order;
  if (beside === void 0) return { fault: "its order is missing" };
  try {
    const { primaryType, domain, message } = beside;
    const order = ORDER_KINDS.includes(primaryType) ? orderInTypedData(primaryType, { domain, message }) : void 0;
    const form = formOfDomain(domain);
    if (order === void 0 || form === void 0)
      return { fault: "its order is not an order of this service" };
    const digest = orderDigest(primaryType, order, domain.chainId, form);
    return digest === proof.digest ? { signed: { kind: primaryType, order, digest, chainId: domain.chainId } } : { fault: "its order does not have the digest that it names" };
  } catch (error) {
    return {
      fault: error instanceof PolicyVersionUnknown ? "its policy was signed in a newer version of the document: check it with a newer release" : "its order cannot be read"
    };
  }
}
async function recovered(hash, signature) {
  try {
    return (await recoverAddress({ hash, signature })).toLowerCase();
  } catch {
    return void 0;
  }
}
function readLine(text2) {
  try {
    const { seq, prevHash, hash, body, order } = JSON.parse(text2);
    const isRow = Number.isSafeInteger(seq) && [prevHash, hash, body].every((part) => typeof part === "string");
    if (!isRow) return void 0;
    return { seq, prevHash, hash, body, ...order === void 0 ? {} : { order } };
  } catch {
    return void 0;
  }
}

// server/plugins/audit/check-file.ts
async function verifyFile(path2, noted2, say) {
  const unreadable = [];
  async function* rows() {
    let number2 = 0;
    for await (const line2 of createInterface({ input: createReadStream(path2) })) {
      number2 += 1;
      const row = readLine(line2);
      if (row) yield row;
      else unreadable.push(number2);
    }
  }
  const verdict = await verifyChain(rows(), noted2);
  const [line] = unreadable;
  if (line === void 0) return report(path2, verdict, say);
  say(`FAILED ${path2}: line ${line} is no line of an audit's export`);
  return false;
}
function report(whose, verdict, say) {
  if (!verdict.ok) say(`FAILED ${whose}: entry ${verdict.seq} ${verdict.why}`);
  else {
    const { head, signatures, byContract } = verdict;
    const unchecked = byContract === 0 ? "" : `, ${byContract} by contracts or passkeys of other records not recomputed`;
    say(`ok ${whose}: ${head.seq} entries, ${signatures} signatures${unchecked}`);
    say(`   head ${head.seq}:${head.hash}`);
  }
  return verdict.ok;
}
function readHead(text2) {
  const [, seq, hash] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text2) ?? [];
  return seq === void 0 || hash === void 0 ? void 0 : { seq: Number(seq), hash };
}

// server/plugins/audit/check-audit.ts
var [path, ...heads] = process.argv.slice(2);
var noted = heads.flatMap((text2) => readHead(text2) ?? []);
if (path === void 0 || noted.length < heads.length) {
  console.error("node check-audit.mjs <export> [<seq>:<hash of 64 hex digits> ...]");
  process.exitCode = 2;
} else if (!await verifyFile(path, noted, (line) => console.log(line))) process.exitCode = 1;
