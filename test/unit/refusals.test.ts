// Goal: a refusal names the first rule that refuses, with its true numbers; a larger amount never helps, and a wider limit never harms.
import * as fc from "fast-check";
import t from "tap";
import { ERRORS } from "../../server/errors.ts";
import { denialError, evaluate, policyOf } from "../../server/plugins/guardrails/decide.ts";
import {
  DENIAL_CODES,
  readFacts,
  RULES,
  type DenialCode,
  type RuleName,
  type Snapshot,
} from "../../server/plugins/guardrails/rules.ts";
import { channelRefusal, FAULTS, switches } from "./rule-cases.ts";

const RUNS = { numRuns: 3_000 };
const WALLET = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";
const OTHER = "0x3c44cdddb6a900fa2b585dd299e03d12fa4293bc";

const upTo = (max: number) => fc.nat({ max }).map(BigInt);
const often = <T>(usual: T, ...others: T[]) =>
  fc.oneof({ weight: 9, arbitrary: fc.constant(usual) }, fc.constantFrom(...others));
/** Mostly far above the requested amount and sometimes near it, so that the last of so many rules are reached too. */
const room = fc.oneof({ weight: 3, arbitrary: upTo(40).map((more) => more + 14n) }, upTo(12));
const limit = fc.option(room, { nil: undefined, freq: 2 });
const used = { spent: upTo(3), reserved: upTo(2) };

const facts: fc.Arbitrary<Snapshot> = fc
  .record({
    approval: fc.option(fc.constant({ id: "apr_1", nonce: "0x01" } as const), {
      nil: undefined,
      freq: 2,
    }),
    target: often<Partial<Snapshot>>(
      { allowed: true },
      { allowed: false },
      { allowed: false, site: "https://a.example", expectedPayee: WALLET, seenPayee: OTHER },
      { allowed: false, site: "https://a.example", expectedPayee: WALLET, seenPayee: OTHER },
      // Two of the three facts of a changed payee are not enough for that refusal.
      { allowed: false, site: "https://a.example", expectedPayee: WALLET },
      { allowed: false, expectedPayee: WALLET, seenPayee: OTHER },
      { allowed: false, payeeSites: ["https://b.example"] },
    ),
    switched: switches(),
    payeeExpired: often<boolean | undefined>(undefined, false, true),
    price: fc.option(upTo(16), { nil: undefined, freq: 2 }),
    channel: fc.option(
      fc.record({
        channelDeposit: fc.oneof(fc.constant(0n), upTo(8)),
        channelHeld: upTo(5),
        channelLimit: fc.oneof(
          { weight: 6, arbitrary: room },
          { weight: 1, arbitrary: fc.constant(0n) },
        ),
        channelDelay: often(900n, 3_600n, 86_400n),
        channelLongestDelay: often(86_400n, 900n),
        payeeChannelHeld: upTo(5),
        payeeChannelLimit: fc.option(room, { nil: undefined, freq: 2 }),
      }),
      { nil: undefined, freq: 2 },
    ),
    requested: upTo(8).map((more) => more + 1n),
    single: fc.record({
      maxAmount: fc.option(room, { freq: 2 }),
      perPaymentLimit: fc.option(room, { freq: 2 }),
      payeePerPaymentLimit: limit,
    }),
    hour: fc.record({ limit, ...used }),
    payee: fc.record({ limit, ...used }),
    day: fc.record({ limit: room, ...used }),
    week: fc.record({ limit, ...used }),
    month: fc.record({ limit, ...used }),
    budget: fc.record({ limit, used: upTo(5), others: fc.option(upTo(3), { nil: undefined }) }),
    task: fc.oneof(
      { weight: 4, arbitrary: fc.constant({}) },
      {
        weight: 1,
        arbitrary: fc.constant<Partial<Snapshot>>({ taskId: "a", taskState: "missing" }),
      },
      {
        weight: 8,
        arbitrary: fc.record<Partial<Snapshot>>({
          taskId: fc.constant("a"),
          taskState: often<Snapshot["taskState"]>("open", "closed", "ended"),
          taskCeiling: room,
          taskSpent: upTo(3),
          taskReserved: upTo(2),
        }),
      },
    ),
    wallet: fc.record({
      balance: room,
      outstanding: upTo(4),
      floor: fc.oneof({ weight: 8, arbitrary: fc.constantFrom(undefined, null, 0n) }, upTo(5)),
    }),
    gas: often<Partial<Snapshot>>(
      { gasHold: 3n },
      { gasShort: "owner", gasLimit: 9n * 10n ** 12n, gasLeft: 10n ** 12n, gasHeld: 10n ** 12n },
      { gasShort: "agents" },
      {},
    ),
  })
  // Members that are undefined are absent.
  .map(
    ({
      approval,
      target,
      switched,
      payeeExpired,
      price,
      channel,
      requested,
      single,
      hour,
      payee,
      day,
      week,
      month,
      budget,
      task,
      wallet,
      gas,
    }) =>
      ({
        status: "active",
        expired: false,
        refusal: null,
        approval,
        ...target,
        payeeExpired,
        price,
        ...channel,
        requested,
        ...single,
        hourlyLimit: hour.limit,
        hourlySpent: hour.spent,
        hourlyReserved: hour.reserved,
        payeeLimit: payee.limit,
        payeeSpent: payee.spent,
        payeeReserved: payee.reserved,
        ...day,
        weeklyLimit: week.limit,
        weeklySpent: week.spent,
        weeklyReserved: week.reserved,
        monthlyLimit: month.limit,
        monthlySpent: month.spent,
        monthlyReserved: month.reserved,
        budgetHours: 720,
        budgetLimit: budget.limit,
        budgetUsed: budget.used,
        budgetOthers: budget.others,
        ...task,
        ...wallet,
        ...gas,
        ...switched,
      }) as Snapshot,
  );

const expectedRefusal = (f: Snapshot): (typeof FAULTS)[number] | undefined =>
  FAULTS.find((fault) => fault.when(f) && !(fault.liftable && f.approval));
/** Rules that the owner can lift for one payment. */
const LIFTABLE = new Set(FAULTS.filter(({ liftable }) => liftable).map(({ rule }) => rule));
const placeOf = (rule: RuleName): number => RULES.findIndex(({ name }) => name === rule);

t.test("the first refusing rule decides, whatever else is wrong", async (t) => {
  const seen = new Set<DenialCode>();
  let allowed = 0;
  fc.assert(
    fc.property(facts, (f) => {
      const found = evaluate(f);
      const expected = expectedRefusal(f);
      if (found.allowed) {
        allowed += 1;
        return expected === undefined && found.trace.every(({ passed }) => passed === true);
      }
      seen.add(found.code);
      const at = found.trace.findIndex(({ rule }) => rule === found.rule);
      return (
        found.rule === expected?.rule &&
        found.code === expected.code &&
        found.trace.every(({ passed }, index) =>
          index < at ? passed === true : index === at ? passed === false : passed === null,
        ) &&
        (found.trace[at]?.liftable === true) === LIFTABLE.has(found.rule)
      );
    }),
    RUNS,
  );
  t.same([...seen].sort(), [...DENIAL_CODES].sort(), "every code occurred");
  t.ok(allowed > RUNS.numRuns / 20, `${allowed} were allowed`);
});

t.test("a larger amount never passes where a smaller one was refused", async () => {
  fc.assert(
    fc.property(facts, upTo(12), (f, more) => {
      const found = evaluate(f);
      // The floor is the only rule that refuses small amounts.
      if (found.allowed || found.rule === "floor") return true;
      const larger = evaluate({ ...f, requested: f.requested + more });
      return !larger.allowed && placeOf(larger.rule) <= placeOf(found.rule);
    }),
    RUNS,
  );
});

const LIMITS = [
  "maxAmount",
  "perPaymentLimit",
  "payeePerPaymentLimit",
  "channelLimit",
  "channelLongestDelay",
  "payeeChannelLimit",
  "hourlyLimit",
  "payeeLimit",
  "limit",
  "weeklyLimit",
  "monthlyLimit",
  "balance",
] as const;
const wider = fc.record(
  Object.fromEntries(LIMITS.map((name) => [name, fc.option(upTo(6), { freq: 3 })])) as Record<
    (typeof LIMITS)[number],
    fc.Arbitrary<bigint | null>
  >,
);
/** Each limit a little higher, or removed. */
function widened(f: Snapshot, by: Record<(typeof LIMITS)[number], bigint | null>): Snapshot {
  const result: Record<string, unknown> = { ...f };
  for (const name of LIMITS) {
    const [now, more] = [f[name], by[name]];
    if (typeof now !== "bigint") continue;
    if (more !== null) result[name] = now + more;
    else if (name === "maxAmount" || name === "perPaymentLimit") result[name] = null;
    else if (["limit", "balance", "channelLimit", "channelLongestDelay"].includes(name))
      result[name] = now + 1_000n;
    else delete result[name];
  }
  return result as unknown as Snapshot;
}

t.test("a wider limit never refuses more, and no earlier rule refuses for it", async () => {
  fc.assert(
    fc.property(facts, wider, (f, by) => {
      const found = evaluate(f);
      const then = evaluate(widened(f, by));
      if (found.allowed) return then.allowed;
      return then.allowed || placeOf(then.rule) >= placeOf(found.rule);
    }),
    RUNS,
  );
});

/** Formats an amount independently, digit by digit. */
function usdc(atomic: bigint): string {
  const digits = String(atomic).padStart(7, "0");
  const [whole, part] = [digits.slice(0, -6), digits.slice(-6)];
  let end = part.length;
  while (end > 0 && part[end - 1] === "0") end -= 1;
  return end === 0 ? whole : `${whole}.${part.slice(0, end)}`;
}

type Numbers = [window: string, limit: string, spent: string, reserved: string, remaining: string];
function numbersOf(f: Snapshot, rule: RuleName): Numbers {
  const windowed = (
    name: string,
    limitOf = 0n,
    spent = 0n,
    reserved = 0n,
    text: (value: bigint) => string = usdc,
  ): Numbers => {
    const left = limitOf - spent - reserved;
    return [name, text(limitOf), text(spent), text(reserved), text(left < 0n ? 0n : left)];
  };
  switch (rule) {
    case "per_payment_limit":
      return windowed("payment", f.perPaymentLimit ?? 0n);
    case "payee_per_payment_limit":
      return windowed("payment", f.payeePerPaymentLimit);
    case "channels": {
      const isOfPayee =
        f.channelLimit !== 0n &&
        (f.payeeChannelLimit === 0n || channelRefusal(f) === "payee_channel_limit_exceeded");
      return isOfPayee
        ? windowed("held", f.payeeChannelLimit, f.payeeChannelHeld)
        : windowed("held", f.channelLimit, f.channelHeld);
    }
    case "payments_per_hour":
      return windowed("1h", f.hourlyLimit, f.hourlySpent, f.hourlyReserved, String);
    case "payee_limit":
      return windowed("24h", f.payeeLimit, f.payeeSpent, f.payeeReserved);
    case "weekly_limit":
      return windowed("7d", f.weeklyLimit, f.weeklySpent, f.weeklyReserved);
    case "monthly_limit":
      return windowed("30d", f.monthlyLimit, f.monthlySpent, f.monthlyReserved);
    case "budget":
      return windowed("30d", f.budgetLimit, f.budgetUsed);
    case "task":
      return f.taskCeiling === undefined
        ? windowed("24h", f.limit, f.spent, f.reserved)
        : windowed("task", f.taskCeiling, f.taskSpent, f.taskReserved);
    default:
      return windowed("24h", f.limit, f.spent, f.reserved);
  }
}

const WINDOWS = new Set<RuleName>([
  "payments_per_hour",
  "payee_limit",
  "daily_limit",
  "weekly_limit",
  "monthly_limit",
  "budget",
]);
const NEVER = new Set<RuleName>([
  "channels",
  "per_payment_limit",
  "payee_per_payment_limit",
  "floor",
]);
/** The amount that a rule compares. */
function comparedOf(f: Snapshot, rule: RuleName): bigint {
  if (rule === "channels") return f.channelDeposit ?? 0n;
  if (rule === "balance") return f.channelDeposit ?? f.requested;
  const isOfPrice = ["max_amount", "per_payment_limit", "payee_per_payment_limit"].includes(rule);
  return isOfPrice ? (f.price ?? f.requested) : f.requested;
}

/** What the task has reserved would be enough, if it came back. */
const mayComeBack = (f: Snapshot, code: string): boolean =>
  code === "task_ceiling_exceeded" &&
  (f.taskReserved ?? 0n) > 0n &&
  (f.taskSpent ?? 0n) + f.requested <= (f.taskCeiling ?? 0n);

t.test("code, numbers and times of a refusal belong to its rule", async (t) => {
  const time = fc.option(fc.nat({ max: 2_000_000_000 }).map((seconds) => new Date(seconds * 1000)));
  const seen = new Set<RuleName>();
  fc.assert(
    fc.property(facts, time, time, (f, availableAt, nextReleaseAt) => {
      const found = evaluate(f);
      if (found.allowed) return true;
      const { code, rule, detail } = found;
      seen.add(rule);
      const moment = { availableAt, nextReleaseAt, walletAddress: WALLET } as const;
      const error = denialError({
        code,
        rule,
        snapshot: f,
        paymentId: "pay_1",
        detail,
        ...moment,
      });
      const { extra } = error;
      const policy = policyOf(f, rule);
      const isOfGas = rule === "gas" && f.gasShort !== undefined;
      const numbers = [
        policy.window,
        policy.limit,
        policy.spent,
        policy.reserved,
        policy.remaining,
      ];
      const iso = availableAt?.toISOString() ?? null;
      return (
        error.status === ERRORS[code].status &&
        JSON.stringify(extra["policy"]) === JSON.stringify(policy) &&
        policy.rule === rule &&
        policy.requested === usdc(comparedOf(f, rule)) &&
        (isOfGas || JSON.stringify(numbers) === JSON.stringify(numbersOf(f, rule))) &&
        (extra["approvable"] === true) === LIFTABLE.has(rule) &&
        (!WINDOWS.has(rule) ||
          (extra["availableAt"] === iso &&
            extra["retryable"] === (iso !== null) &&
            (iso === null || String(extra["suggestion"]).includes(iso)))) &&
        (rule !== "task" ||
          (extra["availableAt"] === null && extra["retryable"] === mayComeBack(f, code))) &&
        (!NEVER.has(rule) || (extra["availableAt"] === null && extra["retryable"] === false))
      );
    }),
    RUNS,
  );
  t.equal(seen.size, RULES.length, "every rule refused");
});

t.test("a decision read back from the database is the same decision", async () => {
  const json = (value: unknown) =>
    JSON.stringify(value, (_name, member: unknown) =>
      typeof member === "bigint" ? String(member) : member,
    );
  fc.assert(
    fc.property(facts, (f) => {
      const again = readFacts(JSON.parse(json(f)) as object);
      return json(evaluate(again)) === json(evaluate(f)) && json(again) === json(f);
    }),
    { numRuns: 1_000 },
  );
});
