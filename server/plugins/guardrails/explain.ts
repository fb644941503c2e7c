/**
 * The guardrails as a pure function: every rule, in the order and with the comparisons of the SQL
 * function purser_first_refusal, which decides when money is at stake. This one explains: dry runs,
 * and the trace an owner sees. A property test holds the two together.
 */
import { formatAtomic } from "../../core/money.ts";
import type {
  DenialCode,
  Evaluation,
  Limits,
  Policy,
  RuleName,
  RuleVerdict,
  Snapshot,
} from "./types.ts";

interface Rule {
  rule: RuleName;
  /** Null: the rule was not asked for (no limit per payment, no maxAmount). */
  check: (snapshot: Snapshot) => { code: DenialCode | null; detail: string } | null;
}

const usdc = (atomic: bigint): string => `${formatAtomic(atomic)} USDC`;
const verdict = (refused: boolean, code: DenialCode, detail: string) => ({
  code: refused ? code : null,
  detail,
});

const RULES: readonly Rule[] = [
  {
    rule: "status",
    check: ({ status }) => verdict(status !== "active", "agent_paused", `The agent is ${status}.`),
  },
  {
    rule: "expiry",
    check: ({ expired }) =>
      verdict(
        expired,
        "agent_expired",
        expired ? "The agent has expired." : "The agent has not expired.",
      ),
  },
  {
    rule: "target",
    check: ({ refusal }) =>
      refusal === null
        ? null
        : {
            code: refusal,
            detail:
              refusal === "listing_mismatch"
                ? "The live terms differ from the listing."
                : "The target may not be paid.",
          },
  },
  {
    rule: "max_amount",
    check: ({ requested, maxAmount }) =>
      maxAmount === null
        ? null
        : verdict(
            requested > maxAmount,
            "price_exceeds_max",
            `${usdc(requested)} asked, maxAmount is ${usdc(maxAmount)}.`,
          ),
  },
  {
    rule: "allowlist",
    check: ({ allowed }) =>
      verdict(
        !allowed,
        "recipient_not_allowed",
        allowed
          ? "The recipient is on the allowlist."
          : "The recipient is not on the agent's allowlist.",
      ),
  },
  {
    rule: "per_payment_limit",
    check: ({ requested, perPaymentLimit }) =>
      perPaymentLimit === null
        ? null
        : verdict(
            requested > perPaymentLimit,
            "per_payment_limit_exceeded",
            `${usdc(requested)} asked, one payment may be ${usdc(perPaymentLimit)}.`,
          ),
  },
  {
    rule: "daily_limit",
    check: ({ requested, spent, reserved, limit }) =>
      verdict(
        spent + reserved + requested > limit,
        "daily_limit_exceeded",
        `${usdc(requested)} asked, ${usdc(spent + reserved)} of ${usdc(limit)} used in the last 24 hours.`,
      ),
  },
  {
    rule: "balance",
    check: ({ requested, balance, outstanding }) =>
      verdict(
        requested > balance - outstanding,
        "insufficient_funds",
        outstanding === 0n
          ? `${usdc(requested)} asked, the wallet holds ${usdc(balance)}.`
          : `${usdc(requested)} asked, the wallet holds ${usdc(balance)}, of which ${usdc(outstanding)} is promised already.`,
      ),
  },
];

export function evaluate(snapshot: Snapshot): Evaluation {
  const trace: RuleVerdict[] = [];
  let refused: { code: DenialCode; rule: RuleName } | undefined;
  for (const { rule, check } of RULES) {
    const found = check(snapshot);
    if (found === null) continue;
    if (refused !== undefined) {
      trace.push({ rule, passed: null, detail: "Not looked at: an earlier rule refused." });
      continue;
    }
    trace.push({ rule, passed: found.code === null, detail: found.detail });
    if (found.code !== null) refused = { code: found.code, rule };
  }
  return refused === undefined ? { allowed: true, trace } : { allowed: false, ...refused, trace };
}

/** A lowered limit below what is spent leaves nothing, not a negative sum. */
export function remainingOf(limit: bigint, used: bigint): bigint {
  return limit > used ? limit - used : 0n;
}

/** The numbers the rule that refused was judged on. */
export function policyOf(snapshot: Snapshot, rule: RuleName): Policy {
  const requested = formatAtomic(snapshot.requested);
  if (rule === "per_payment_limit" && snapshot.perPaymentLimit !== null) {
    const limit = formatAtomic(snapshot.perPaymentLimit);
    return {
      rule,
      window: "payment",
      limit,
      spent: "0",
      reserved: "0",
      remaining: limit,
      requested,
    };
  }
  return {
    rule,
    window: "24h",
    limit: formatAtomic(snapshot.limit),
    spent: formatAtomic(snapshot.spent),
    reserved: formatAtomic(snapshot.reserved),
    remaining: formatAtomic(remainingOf(snapshot.limit, snapshot.spent + snapshot.reserved)),
    requested,
  };
}

export interface LimitsOnWire {
  limit: string;
  spent: string;
  reserved: string;
  remaining: string;
  nextReleaseAt: string | null;
}

export function limitsOnWire(limits: Limits): LimitsOnWire {
  return {
    limit: formatAtomic(limits.limitAtomic),
    spent: formatAtomic(limits.spentAtomic),
    reserved: formatAtomic(limits.reservedAtomic),
    remaining: formatAtomic(limits.remainingAtomic),
    nextReleaseAt: limits.nextReleaseAt?.toISOString() ?? null,
  };
}
