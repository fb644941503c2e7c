/** What the app says about payment channels. */
import { durationText } from "../../../../packages/rules/src/kinds.ts";
import { formatClock } from "../../lib/time.ts";
import type { AgentChannel } from "../../lib/wire.ts";

/** The site where the channel was used last; without one, the payee. */
export function sellerOf({ url, payTo }: AgentChannel): string {
  try {
    if (url !== null) return new URL(url).host;
  } catch {
    // Not a URL: the payee says enough.
  }
  return `${payTo.slice(0, 6)}…${payTo.slice(-4)}`;
}

export function statusIn(channel: AgentChannel, nowMs: number): string {
  const { status, reason, returnsAt } = channel;
  if (status !== "closing") return status === "open" ? "Open" : "Closed";
  if (returnsAt !== null) return `Closing: withdrawal until ${formatClock(returnsAt, nowMs)}`;
  if (reason === "unused") return "Closing: not used for 30 days";
  return reason === "seller_broke_rules"
    ? "Closing: the seller broke the rules"
    : "Closing: the seller was asked";
}

/** What closing does, and how long it takes at most. */
export const whatClosingDoes = (delaySeconds: number): string =>
  `The seller is asked to return what it has not charged, which takes about a minute. If it does not, Purser withdraws the rest: that takes at most ${durationText(BigInt(delaySeconds))} and a few minutes more, and needs nothing from you. Until then the seller can still claim what is signed for.`;
