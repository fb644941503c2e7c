/** A label for each notification type, and a sentence for each notification. */
import type { MantineColor } from "@mantine/core";
import { formatUsdc, parseUsdc } from "../../lib/money.ts";
import type { Notification, NotificationTypeName } from "../../lib/wire.ts";

interface TypeLabel {
  label: string;
  group: string;
  color: MantineColor;
}

const words = (label: string, group: string, color: MantineColor = "gray"): TypeLabel => ({
  label,
  group,
  color,
});

export const TYPES: Readonly<Record<NotificationTypeName, TypeLabel>> = {
  "payment.settled": words("Payment made", "Payments", "green"),
  "payment.failed": words("Payment reversed", "Payments", "red"),
  "payment.blocked": words("Payment refused", "Payments", "yellow"),
  "payment.undelivered": words("Paid, not delivered", "Payments", "red"),
  "approval.requested": words("Approval requested", "Approvals", "sea"),
  "approval.granted": words("Approval granted", "Approvals"),
  "approval.declined": words("Approval declined", "Approvals"),
  "approval.expired": words("Approval expired", "Approvals"),
  "agent.limit_reached": words("Limit reached", "Agents", "yellow"),
  "agent.low_balance": words("Low balance", "Agents", "yellow"),
  "agent.funded": words("Money received", "Agents", "green"),
  "withdrawal.settled": words("Withdrawal made", "Agents"),
  "policy.changed": words("Rules changed", "Access", "sea"),
  "key.created": words("Key created", "Access", "sea"),
  "key.revoked": words("Key revoked", "Access"),
  "session.created": words("Signed in", "Access", "sea"),
  "settlement.settled": words("You were paid", "Your sales", "green"),
  "settlement.failed": words("A payment to you failed", "Your sales", "red"),
  "refund.settled": words("Refund made", "Your sales"),
  "refund.failed": words("Refund failed", "Your sales", "red"),
  "listing.flagged": words("Listing flagged", "Your sales", "yellow"),
  "webhook.disabled": words("Webhook disabled", "Webhooks", "red"),
  "webhook.test": words("Test", "Webhooks"),
};
export const TYPE_NAMES = Object.keys(TYPES) as NotificationTypeName[];

/** The types that can be sent at once; payments are sent in the digest. */
export const URGENT_NAMES = TYPE_NAMES.filter(
  (name) => !/^(payment\.settled|settlement\.settled|webhook\.test)$/.test(name),
);
/** A test is sent by its button, independent of the chosen types. */
export const WEBHOOK_NAMES = TYPE_NAMES.filter((name) => name !== "webhook.test");

/** A type that this version of the app does not know is shown by its name. */
export const typeLabel = (type: string): TypeLabel =>
  TYPES[type as NotificationTypeName] ?? words(type, "Other");

const fact = (data: Notification["data"], name: string): string => {
  const value = data[name];
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
};

function money(data: Notification["data"], name: string): string {
  const text = fact(data, name);
  return parseUsdc(text) === undefined ? "an amount" : `${formatUsdc(text)} USDC`;
}

const LIMITS: Readonly<Record<string, string>> = {
  "24h": "daily",
  "7d": "weekly",
  "30d": "monthly",
};

/** `who` is the agent's name. */
export function sentence({ type, data }: Notification, who: string): string {
  const amount = money(data, "amount");
  const sentences: Readonly<Record<NotificationTypeName, string>> = {
    "payment.settled": `${who} paid ${amount}`,
    "payment.failed": `The chain reversed a payment of ${amount} that ${who} ${fact(data, "kind") === "incoming" ? "had received" : "had made"}`,
    "payment.blocked": `A payment of ${amount} by ${who} was refused: ${fact(data, "denialCode").replaceAll("_", " ")}`,
    "payment.undelivered": `${who} paid ${amount}, and the seller did not deliver`,
    "approval.requested": `${who} requests approval for ${amount}`,
    "approval.granted": `You allowed ${who} to pay ${amount}`,
    "approval.declined": `You declined ${amount} for ${who}`,
    "approval.expired": `A request of ${who} for ${amount} expired`,
    "agent.limit_reached": `${who} has used ${fact(data, "percent")} % of its ${LIMITS[fact(data, "window")] ?? "daily"} limit of ${money(data, "limit")}`,
    "agent.low_balance": `${who} has only ${money(data, "balance")} left`,
    "agent.funded": `${who} received ${amount}`,
    "withdrawal.settled": `${amount} was withdrawn from ${who}`,
    "policy.changed": change(fact(data, "change"), data["agentId"] === undefined ? "" : who),
    "key.created": `A key was created for ${who}`,
    "key.revoked": `A key of ${who} was revoked`,
    "session.created": `New sign-in with your wallet from ${fact(data, "ip") || "an unknown address"}`,
    "settlement.settled": `You were paid ${amount}`,
    "settlement.failed":
      data["corrected"] === true
        ? `A settled payment of ${amount} to you was reversed`
        : `A payment of ${amount} to you failed`,
    "refund.settled": `You refunded ${amount}`,
    "refund.failed": `A refund of ${amount} failed`,
    "listing.flagged": "One of your listings was flagged",
    "webhook.disabled": "A webhook was disabled",
    "webhook.test": "Webhook test",
  };
  return sentences[type as NotificationTypeName] ?? type;
}

const CHANGES: Readonly<Record<string, string>> = {
  "agent.created": "was created",
  "agent.updated": "has new rules",
  "agent.paused": "was paused",
  "agent.resumed": "was resumed",
  "agent.archived": "was archived",
  "allowlist.added": "may pay a new payee",
  "allowlist.removed": "may no longer pay a payee",
  "allowlist.replaced": "has a new list of payees",
  "second.named": "Your recovery wallet was changed",
  "owner.moved": "Your account was moved to another wallet",
  "owner.received": "You received the agents of another wallet",
};
const change = (what: string, who: string): string =>
  [who, CHANGES[what] ?? what.replaceAll(/[._]/g, " ")].filter(Boolean).join(" ");

const THIRD_PARTY_MEMBERS = ["label", "name", "site", "reason", "memo", "errorMessage"];

/** Third-party texts of a notification, which the service has sanitized; they are shown as quotations. */
export function thirdPartyTexts({ data }: Notification): string[] {
  const { thirdParty } = data;
  if (typeof thirdParty !== "object" || thirdParty === null) return [];
  return THIRD_PARTY_MEMBERS.flatMap((name) => {
    const value = (thirdParty as Record<string, unknown>)[name];
    return typeof value === "string" && value !== "" ? [value] : [];
  });
}

/** The page of the app that shows the subject. */
export function placeOf({ type, agentId, subjectId }: Notification): string | undefined {
  if (type.startsWith("approval.")) return `/approvals?approval=${encodeURIComponent(subjectId)}`;
  if (type === "session.created") return "/settings";
  if (type.startsWith("webhook."))
    return `/notifications/webhooks?webhook=${encodeURIComponent(subjectId)}`;
  if (type === "listing.flagged") return `/marketplace/${encodeURIComponent(subjectId)}`;
  if (agentId === null) return undefined;
  const base = `/agents/${encodeURIComponent(agentId)}`;
  if (type.startsWith("payment.") || type === "withdrawal.settled" || type === "agent.funded")
    return `${base}?payment=${encodeURIComponent(subjectId)}`;
  if (type.startsWith("key.")) return `${base}/keys`;
  return type === "policy.changed" ? `${base}/rules` : base;
}
