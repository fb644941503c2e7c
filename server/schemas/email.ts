/** Wire types of an owner's e-mail notifications. */
import { Type, type Static } from "typebox";
import { Described, Nullable, OneOf, Strict, Timestamp } from "./common.ts";
import { NOTIFICATION_TYPES } from "./notifications.ts";

export const DIGESTS = ["hourly", "daily", "off"] as const;

/** The events that may be sent immediately. Payments are too many, and wait for the digest. */
export const URGENT_TYPES = NOTIFICATION_TYPES.filter(
  (type) => !/^(payment\.settled|settlement\.settled|webhook\.test)$/.test(type),
);
/** Sent immediately by default: events that need a decision, or that a thief would cause. */
export const URGENT_BY_DEFAULT: readonly (typeof NOTIFICATION_TYPES)[number][] = [
  "approval.requested",
  "order.waiting",
  "payment.failed",
  "agent.limit_reached",
  "budget.limit_reached",
  "agent.low_balance",
  "agent.paused",
  "policy.changed",
  "owner.stopped",
  "owner.resumed",
  "key.created",
  "session.created",
  "withdrawal.settled",
  "channel.refused",
  "webhook.disabled",
];

const Digest = OneOf(
  DIGESTS,
  "How often a summary of all events is sent; never one mail per payment",
);
const Urgent = Type.Array(OneOf(URGENT_TYPES), {
  maxItems: 40,
  uniqueItems: true,
  description:
    "Sent immediately, at most 4 mails an hour; more events wait for the digest. `agent.limit_reached` and `budget.limit_reached` at 100 %, and `session.created` from a new device",
  examples: [["approval.requested", "key.created"]],
});
const EmailAddressText = Type.String({
  minLength: 3,
  maxLength: 254,
  examples: ["owner@example.com"],
});

export const Email = Type.Object({
  available: Type.Boolean({ description: "false: this service is not set up to send e-mail" }),
  address: Nullable(EmailAddressText, "null: no address is set"),
  confirmedAt: Nullable(Timestamp, "null: only the confirmation mail is sent there"),
  pendingAddress: Nullable(
    EmailAddressText,
    "An address that must be confirmed before it replaces `address`",
  ),
  digest: Digest,
  urgent: Urgent,
  stopped: Nullable(
    OneOf(["unsubscribed", "refused"]),
    "Why sending stopped: someone unsubscribed, or the server refused our mails for days. Set the address again to restart",
  ),
  failingSince: Nullable(Timestamp, "Since when mails to this address fail; null: they work"),
  lastError: Described(Nullable(Type.String()), "The server's message for the last refused mail"),
});
export type Email = Static<typeof Email>;

export const EmailBody = Strict({
  address: EmailAddressText,
  digest: Type.Optional(Digest),
  urgent: Type.Optional(Urgent),
});
export const EmailToken = Strict({
  token: Type.String({
    minLength: 1,
    maxLength: 100,
    description: "From the link of the mail",
    examples: ["purser_ec_4Qm0xTz8sW2"],
  }),
});
/** One-click unsubscribe (RFC 8058): the form that a mail program posts. */
export const UnsubscribeQuery = EmailToken;
export const UnsubscribeBody = Type.Object(
  { "List-Unsubscribe": Type.Optional(Type.String()) },
  { description: "RFC 8058 sends `List-Unsubscribe=One-Click` as a form; the content is ignored" },
);
