import type { MantineColor } from "@mantine/core";
import { formatUsdc } from "../../lib/money.ts";
import type { Payment } from "../../lib/wire.ts";

export const KINDS: Record<string, string> = {
  spend: "Payment",
  x402: "Paid API",
  withdrawal: "Withdrawal",
  incoming: "Received",
  deposit: "Deposit into a channel",
};

type ChannelNeeds = NonNullable<NonNullable<Payment["denial"]>["needs"]>;

interface StatusLabel {
  label: string;
  color: MantineColor;
  /** For the drawer: the meaning of this state for the money. */
  meaning: string;
}

const WORDS: Record<string, StatusLabel> = {
  settled: {
    label: "Settled",
    color: "green",
    meaning: "On chain. It counts against the limit for 24 hours.",
  },
  submitted: {
    label: "Pending",
    color: "sea",
    meaning: "Signed and sent. It counts against the limit until it settles or fails.",
  },
  reserved: {
    label: "Reserved",
    color: "sea",
    meaning: "The budget is reserved; nothing is sent yet.",
  },
  unknown: {
    label: "Outcome unknown",
    color: "yellow",
    meaning:
      "Signed, but the chain has not confirmed the outcome yet. The budget stays reserved until then.",
  },
  voided: {
    label: "Voided",
    color: "gray",
    meaning: "Cancelled; not paid. The budget is free again.",
  },
  blocked: {
    label: "Blocked",
    color: "red",
    meaning: "A rule refused the payment. Nothing was signed and no money moved.",
  },
};

/** Paid by a voucher of a payment channel, without a transaction of its own. */
export const isThroughChannel = ({ kind, channel }: Payment): boolean =>
  kind === "x402" && channel !== null;

const NOT_CHARGED: StatusLabel = {
  label: "Not charged",
  color: "gray",
  meaning:
    "The seller charged nothing. It still holds the signed voucher, so the amount counts against the limit.",
};
const CHARGE_NOT_KNOWN: StatusLabel = {
  label: "Charge not known",
  color: "yellow",
  meaning:
    "The seller charged for one or more requests whose responses were lost. Nothing shows for which. The amount counts against the limit; contact the seller.",
};
const SELLER_REFUSED: StatusLabel = {
  label: "Refused by the seller",
  color: "gray",
  meaning:
    "The seller reports that it charged nothing. It still holds the signed voucher, so the amount counts against the limit.",
};
const IN_CHANNEL: Record<string, string> = {
  settled: "Paid from the payment channel. It counts against the limit for 24 hours.",
  submitted:
    "Signed and sent to the seller. It counts against the limit until its outcome is known.",
  unknown:
    "Signed and sent to the seller, whose response was lost. It counts against the limit: the seller may still charge it.",
};
const FAILURES: Readonly<Record<string, StatusLabel>> = {
  not_charged: NOT_CHARGED,
  charge_not_known: CHARGE_NOT_KNOWN,
  seller_refused: SELLER_REFUSED,
};
const DEPOSIT: Record<string, string> = {
  settled:
    "In the payment channel. It is not spent, and does not count against the daily limit: what the seller does not charge comes back.",
  submitted: "Signed and sent. It is not spent, and does not count against the daily limit.",
  unknown: "Signed, but the chain has not confirmed the outcome yet.",
  voided: "Cancelled: the money stayed in the wallet.",
};

const isUndelivered = (payment: Payment): boolean =>
  payment.kind === "x402" && payment.status === "settled" && payment.x402?.delivered === false;

export function statusOf(payment: Payment): StatusLabel {
  const words = WORDS[payment.status] ?? { label: payment.status, color: "gray", meaning: "" };
  if (payment.kind === "deposit")
    return { ...words, meaning: DEPOSIT[payment.status] ?? words.meaning };
  const failed = FAILURES[payment.failure?.code ?? ""];
  if (failed) return failed;
  if (isUndelivered(payment)) {
    return {
      label: "Paid, not delivered",
      color: "yellow",
      meaning: `The payment settled, but the seller did not deliver. Do not pay again; contact the seller with the ${isThroughChannel(payment) ? "voucher" : "transaction"} as proof.`,
    };
  }
  return isThroughChannel(payment)
    ? { ...words, meaning: IN_CHANNEL[payment.status] ?? words.meaning }
    : words;
}

/** A token mints from the zero address: faucets and bridges do this. */
const ZERO_ADDRESS = "0x0000000000000000000000000000000000000000";
/** The contract of payment channels, on every chain: it returns what a seller did not charge. */
const CHANNEL_CONTRACT = "0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003";

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
  if (payment.kind === "incoming" && other === CHANNEL_CONTRACT)
    return "Back from a payment channel";
  const label = other === null ? undefined : labelOf(other);
  if (label) return label;
  if (other === null && payment.status === "blocked") return "More refusals";
  return other === null
    ? (KINDS[payment.kind] ?? payment.kind)
    : `${other.slice(0, 6)}…${other.slice(-4)}`;
}

/** The limit that a payment exceeded. */
const LIMITS: Readonly<Record<string, string>> = {
  daily_limit_exceeded: "the daily limit",
  weekly_limit_exceeded: "the weekly limit",
  monthly_limit_exceeded: "the monthly limit",
  payee_limit_exceeded: "this payee's daily limit",
  budget_exceeded: "the shared budget",
};

/** Where a deposit would have been too much. */
const CHANNELS: Readonly<Record<string, string>> = {
  channel_limit_exceeded: "in payment channels",
  payee_channel_limit_exceeded: "in payment channels to this payee",
};

const REASONS: Readonly<Record<string, string>> = {
  payee_expired: "The permission to pay this payee had expired.",
  recipient_not_allowed: "The payee is not on the allowlist.",
  site_payee_changed: "The site requested payment to a different address from the one you allowed.",
  payee_bound_to_site: "You allowed this payee only at its own site.",
  origin_not_allowed: "The agent may not fetch from this site.",
  agent_paused: "The agent was paused.",
  paused_by_rule: "A rule of yours paused the agent.",
  outside_pay_times: "It was outside the hours or days on which the agent pays.",
  agent_expired: "The agent had expired.",
  price_exceeds_max: "The price was above the maximum that the agent set for this call.",
  listing_mismatch: "The seller's terms differed from its listing. Nothing was paid.",
  challenge_already_used:
    "The seller reused a payment challenge that an earlier payment had answered. Nothing was paid.",
  channel_distrusted:
    "The seller broke the rules of an earlier payment channel, which is being closed. Nothing was paid.",
};

/**
 * The API's suggestion is for the agent; this explanation is for the owner, with the numbers at the time of
 * the refusal.
 */
export function explainDenial({ denial, amount }: Payment): string {
  if (!denial) return "";
  const { code, policy } = denial;
  const usdc = (value: string): string => (/^\d/.test(value) ? `${formatUsdc(value)} USDC` : value);
  const payment = `The payment of ${usdc(amount)} exceeded the`;
  const price = `The payment of ${usdc(policy.requested)} exceeded the`;
  if (LIMITS[code] !== undefined)
    return `${payment} ${usdc(policy.remaining)} left of ${LIMITS[code]} of ${usdc(policy.limit)}.`;
  if (code === "per_payment_limit_exceeded")
    return `${price} limit of ${usdc(policy.limit)} per payment.`;
  if (code === "payee_per_payment_limit_exceeded")
    return `${price} limit of ${usdc(policy.limit)} per payment to this payee.`;
  if (code === "payment_rate_exceeded")
    return `The agent had already made its ${policy.limit} payments in that hour.`;
  if (CHANNELS[code] !== undefined)
    return `The payment needed a deposit of ${usdc(policy.requested)}, with ${usdc(policy.spent)} of ${usdc(policy.limit)} held ${CHANNELS[code]}.`;
  if (code === "channel_not_allowed") return channelReason(denial.needs ?? {});
  return REASONS[code] ?? denial.suggestion;
}

function channelReason({ channelHeld, payeeChannelHeld }: ChannelNeeds): string {
  if (channelHeld !== undefined)
    return "You have not allowed this agent to pay through payment channels.";
  return payeeChannelHeld === undefined
    ? "The payment channel can keep unspent money for longer than you allow."
    : "You allow no payment channel to this payee.";
}

/** An error code as a heading. */
export const codeLabel = (code: string): string =>
  code.charAt(0).toUpperCase() + code.slice(1).replaceAll("_", " ");
