/** A label for each notification type, and the third-party texts of a notification. */
import type { MantineColor } from "@mantine/core";
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
  "budget.limit_reached": words("Budget's limit reached", "Agents", "yellow"),
  "agent.low_balance": words("Low balance", "Agents", "yellow"),
  "agent.paused": words("Paused by a rule", "Agents", "red"),
  "agent.funded": words("Money received", "Agents", "green"),
  "withdrawal.settled": words("Withdrawal made", "Agents"),
  "channel.opened": words("Payment channel opened", "Payment channels"),
  "channel.low": words("Little left in a payment channel", "Payment channels", "yellow"),
  "channel.closed": words("Payment channel closed", "Payment channels", "green"),
  "channel.refused": words("Payment channel refused", "Payment channels", "red"),
  "policy.changed": words("Rules changed", "Access", "sea"),
  "owner.stopped": words("Everything stopped", "Access", "red"),
  "owner.resumed": words("Stop ended", "Access", "sea"),
  "order.waiting": words("Waits for signatures", "Teams", "sea"),
  "order.carried_out": words("Signed and carried out", "Teams", "green"),
  "order.ended": words("Ended unsigned", "Teams"),
  "team.invited": words("Invitation to a team", "Teams", "sea"),
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
