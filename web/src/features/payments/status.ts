import type { Tone } from "../../components/Badge.tsx";
import { formatUsdc } from "../../lib/money.ts";
import type { Payment } from "../../lib/wire.ts";

export const KINDS: Record<string, string> = {
  spend: "Payment",
  x402: "Paid API",
  withdrawal: "Withdrawal",
  incoming: "Received",
};

interface StatusLabel {
  label: string;
  tone: Tone;
  /** For the drawer: the meaning of this state for the money. */
  meaning: string;
}

const WORDS: Record<string, StatusLabel> = {
  settled: {
    label: "Settled",
    tone: "ok",
    meaning: "On chain. It counts against the limit for 24 hours.",
  },
  submitted: {
    label: "Pending",
    tone: "accent",
    meaning: "Signed and sent. It counts against the limit until it settles or fails.",
  },
  reserved: {
    label: "Reserved",
    tone: "accent",
    meaning: "The budget is reserved; nothing is sent yet.",
  },
  unknown: {
    label: "Outcome unknown",
    tone: "warn",
    meaning:
      "Signed, but the chain has not confirmed the outcome yet. The budget stays reserved until then.",
  },
  voided: {
    label: "Voided",
    tone: "neutral",
    meaning: "Cancelled; not paid. The budget is free again.",
  },
  blocked: {
    label: "Blocked",
    tone: "bad",
    meaning: "A rule refused the payment. Nothing was signed and no money moved.",
  },
};

const isUndelivered = (payment: Payment): boolean =>
  payment.kind === "x402" && payment.status === "settled" && payment.x402?.delivered === false;

export function statusOf(payment: Payment): StatusLabel {
  if (isUndelivered(payment)) {
    return {
      label: "Paid, not delivered",
      tone: "warn",
      meaning:
        "The payment settled, but the seller did not deliver. Do not pay again; contact the seller with the transaction as proof.",
    };
  }
  return WORDS[payment.status] ?? { label: payment.status, tone: "neutral", meaning: "" };
}

/** A token mints from the zero address: faucets and bridges do this. */
const ZERO_ADDRESS = "0x0000000000000000000000000000000000000000";

/** The title of a row, in the owner's terms. */
export function titleOf(
  payment: Payment,
  labelOf: (address: string) => string | undefined,
): string {
  if (payment.kind === "x402" && payment.x402?.url) {
    try {
      const { host, pathname } = new URL(payment.x402.url);
      return `${host}${pathname === "/" ? "" : pathname}`;
    } catch {
      return payment.x402.url;
    }
  }
  const other = payment.kind === "incoming" ? payment.sender : payment.recipient;
  if (other === ZERO_ADDRESS) return "Newly minted";
  const label = other === null ? undefined : labelOf(other);
  if (label) return label;
  if (other === null && payment.status === "blocked") return "More refusals";
  return other === null
    ? (KINDS[payment.kind] ?? payment.kind)
    : `${other.slice(0, 6)}…${other.slice(-4)}`;
}

/**
 * The API's suggestion is for the agent; this explanation is for the owner, with the numbers at the time of
 * the refusal.
 */
export function explainDenial({ denial, amount }: Payment): string {
  if (!denial) return "";
  const { policy } = denial;
  const usdc = (value: string): string => (/^\d/.test(value) ? `${formatUsdc(value)} USDC` : value);
  switch (denial.code) {
    case "daily_limit_exceeded":
      return `The payment of ${usdc(amount)} exceeded the ${usdc(policy.remaining)} left of the daily limit of ${usdc(policy.limit)}.`;
    case "weekly_limit_exceeded":
      return `The payment of ${usdc(amount)} exceeded the ${usdc(policy.remaining)} left of the weekly limit of ${usdc(policy.limit)}.`;
    case "monthly_limit_exceeded":
      return `The payment of ${usdc(amount)} exceeded the ${usdc(policy.remaining)} left of the monthly limit of ${usdc(policy.limit)}.`;
    case "payee_limit_exceeded":
      return `The payment of ${usdc(amount)} exceeded the ${usdc(policy.remaining)} left of this payee's daily limit of ${usdc(policy.limit)}.`;
    case "payment_rate_exceeded":
      return `The agent had already made its ${policy.limit} payments in that hour.`;
    case "payee_per_payment_limit_exceeded":
      return `The payment of ${usdc(amount)} exceeded the limit of ${usdc(policy.limit)} per payment to this payee.`;
    case "payee_expired":
      return "The permission to pay this payee had expired.";
    case "per_payment_limit_exceeded":
      return `The payment of ${usdc(amount)} exceeded the limit of ${usdc(policy.limit)} per payment.`;
    case "recipient_not_allowed":
      return "The payee is not on the allowlist.";
    case "site_payee_changed":
      return "The site requested payment to a different address from the one you allowed.";
    case "payee_bound_to_site":
      return "You allowed this payee only at its own site.";
    case "origin_not_allowed":
      return "The agent may not fetch from this site.";
    case "agent_paused":
      return "The agent was paused.";
    case "agent_expired":
      return "The agent had expired.";
    case "price_exceeds_max":
      return "The price was above the maximum that the agent set for this call.";
    case "listing_mismatch":
      return "The seller's terms differed from its listing. Nothing was paid.";
    case "challenge_already_used":
      return "The seller reused a payment challenge that an earlier payment had answered. Nothing was paid.";
    default:
      return denial.suggestion;
  }
}

/** An error code as a heading. */
export const codeLabel = (code: string): string =>
  code.charAt(0).toUpperCase() + code.slice(1).replaceAll("_", " ");
