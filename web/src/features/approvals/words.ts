import type { MantineColor } from "@mantine/core";
import { formatUsdc } from "../../lib/money.ts";
import type { Approval } from "../../lib/wire.ts";

export const STATUS: Record<
  Approval["status"],
  { label: string; color: MantineColor; meaning: string }
> = {
  open: {
    label: "Waiting for you",
    color: "yellow",
    meaning: "Not paid. The agent waits for your decision.",
  },
  granted: {
    label: "Allowed",
    color: "sea",
    meaning: "The agent may make this payment once. It has not paid yet.",
  },
  declined: {
    label: "Declined",
    color: "gray",
    meaning: "Not paid. The agent sees that you declined.",
  },
  expired: {
    label: "Expired",
    color: "gray",
    meaning: "Not paid. The request was not decided in time, or the payment terms changed.",
  },
  used: {
    label: "Used",
    color: "green",
    meaning: "The agent made this payment. The approval cannot be used again.",
  },
};

export const meaningOf = ({ status, decidedAt }: Approval): string =>
  status === "expired" && decidedAt !== null
    ? "Not paid. The payment was allowed, but the agent did not pay in time, or the payment terms changed."
    : STATUS[status].meaning;

const DURING: Record<string, string> = {
  "1h": "in an hour",
  "24h": "in 24 hours",
  "7d": "in 7 days",
  "30d": "in 30 days",
};

/** The limit that refused the payment, at that time. */
export function describeLimit(policy: Approval["denial"]["policy"]): string {
  const { window = "", limit = "0", spent = "0" } = policy;
  if (window === "payment") return `${formatUsdc(limit)} USDC per payment`;
  const during = DURING[window] ?? `(${window})`;
  return window === "1h"
    ? `${limit} payments ${during}, ${spent} made`
    : `${formatUsdc(limit)} USDC ${during}, ${formatUsdc(spent)} USDC used`;
}
