/** Wire types of notifications: the events, the webhooks, and the result of each delivery. */
import { Type, type Static } from "typebox";
import {
  Described,
  Flag,
  Id,
  Nullable,
  OneOf,
  Page,
  pageQuery,
  Strict,
  Timestamp,
} from "./common.ts";

/** The event types. More may be added. */
export const NOTIFICATION_TYPES = [
  "payment.settled",
  "payment.failed",
  "payment.blocked",
  "payment.undelivered",
  "approval.requested",
  "approval.granted",
  "approval.declined",
  "approval.expired",
  "agent.limit_reached",
  "budget.limit_reached",
  "agent.low_balance",
  "agent.funded",
  "agent.paused",
  "policy.changed",
  "owner.stopped",
  "owner.resumed",
  "order.waiting",
  "order.carried_out",
  "order.ended",
  "team.invited",
  "key.created",
  "key.revoked",
  "session.created",
  "withdrawal.settled",
  "channel.opened",
  "channel.low",
  "channel.closed",
  "channel.refused",
  "listing.flagged",
  "settlement.settled",
  "settlement.failed",
  "refund.settled",
  "refund.failed",
  "webhook.test",
  "webhook.disabled",
] as const;
export type NotificationTypeName = (typeof NOTIFICATION_TYPES)[number];

/** When each event is sent, for docs/reference/events.md. */
export const NOTIFICATION_MEANINGS: Readonly<Record<NotificationTypeName, string>> = {
  "payment.settled": "An agent paid.",
  "payment.failed":
    'A reorganisation took back, for good, a payment that was reported as paid, or with `kind: "incoming"` one that was reported as received. `corrected` is always set.',
  "payment.blocked": "A rule refused a payment of an agent.",
  "payment.undelivered": "An agent paid, and the seller failed to deliver.",
  "approval.requested": "An agent asks its owner to allow one payment.",
  "approval.granted": "The owner signed the approval.",
  "approval.declined": "The owner declined the approval.",
  "approval.expired": "The approval expired.",
  "agent.limit_reached":
    "An agent used 80 % or 100 % (`percent`) of a limit (`window`: `24h`, `7d`, `30d`). It is sent again after the use fell below 70 %, or a window later.",
  "budget.limit_reached":
    "The agents of a budget used 80 % or 100 % (`percent`) of one of its limits (`window`) together. It is sent again after the use fell below 70 %, or a window later.",
  "agent.low_balance": "The wallet of an agent holds less than a tenth of its daily limit.",
  "agent.funded": "The wallet of an agent received money.",
  "agent.paused":
    "A rule paused an agent (`rule`, and why in `detail`). Resuming it needs the owner's signature.",
  "policy.changed":
    "An agent was created, changed, paused or archived, or its payees, or the owner's recovery wallet, passkeys, payout address or denied payees changed.",
  "owner.stopped": "Everything was stopped: all agents are paused until the owner signs.",
  "owner.resumed": "The stop was ended: the agents that it paused can pay again.",
  "order.waiting":
    "An order of a team waits for signatures: for the team, and for each member whose signature counts.",
  "order.carried_out": "All signatures were there, and the order of the team was carried out.",
  "order.ended":
    "An order of a team that waited for signatures ended without effect (`reason`: `withdrawn`, `expired`, `members` when the members changed, `outdated` when it would do something else by now).",
  "team.invited":
    "You are named as somebody who decides in a team. You are not in it before you sign its list.",
  "key.created": "A key or connection that can act for an agent was created.",
  "key.revoked": "A key or connection of an agent was revoked.",
  "session.created": "Somebody signed in as the owner.",
  "withdrawal.settled": "A withdrawal that the owner ordered was paid.",
  "channel.opened": "The first deposit of an agent into a payment channel is on the chain.",
  "channel.low":
    "Less than a fifth of the last deposit is left in a payment channel beyond what is signed, or a limit prevents the next deposit: `needs` has what to sign then. At most once each for a deposit. Without `needs` the agent deposits again by itself.",
  "channel.closed":
    "A payment channel is closed: the seller charged `charged`, and `returned` came back.",
  "channel.refused":
    "A seller broke the rules of a payment channel: it is used no more, and is being closed.",
  "listing.flagged": "The endpoint of a listing asks for other terms than the listing has.",
  "settlement.settled":
    "For merchants: a payment to your address settled, named by its `nonce` and `payer`. `corrected` is set if it was reported otherwise before.",
  "settlement.failed":
    "For merchants: a payment to your address failed. `corrected` is set if it was reported otherwise before.",
  "refund.settled": "For merchants: a refund that you signed was paid.",
  "refund.failed": "For merchants: a refund that you signed failed.",
  "webhook.test": "You requested a test message.",
  "webhook.disabled": "Another webhook of yours was disabled.",
};

const typeExample = { examples: ["payment.settled"] };
export const NotificationType = Type.String({
  pattern: "^[a-z]+\\.[a-z_]+$",
  description: `The event: ${NOTIFICATION_TYPES.join(", ")}. New types may be added`,
  ...typeExample,
});

export const Notification = Type.Object({
  id: Described(Id, "The `webhook-id`: the same for every delivery of the event"),
  type: NotificationType,
  agentId: Nullable(Id),
  subjectId: Type.String({
    minLength: 1,
    maxLength: 66,
    pattern: "^[A-Za-z0-9_-]+$",
    description:
      "The id of the payment, approval, agent, key, session, payment channel or other subject",
    examples: ["pay_01kc0r5f3x8q2v7n4m6t9w0yzb"],
  }),
  data: Type.Record(Type.String(), Type.Unknown(), {
    description:
      "The same as in the webhook. Amounts are decimal strings of USDC; text from third parties is under `thirdParty`",
    examples: [{ paymentId: "pay_01kc0r5f3x8q2v7n4m6t9w0yzb", amount: "1.5" }],
  }),
  createdAt: Timestamp,
  at: Described(Timestamp, "The same as `createdAt`"),
  title: Type.String({
    description: "What happened, in one sentence",
    examples: ["research-agent has only 0.50 USDC left"],
  }),
  detail: Type.String({
    description:
      "Facts beside the title, possibly empty; text from third parties is only in `data`",
    examples: ["To: 0x8ba1f109551bd432803012645ac136ddd64dba72"],
  }),
  path: Type.String({
    description: "The page of the web app where something can be done about it",
    examples: ["/agents/agt_01kc0r5f3x8q2v7n4m6t9w0yzb"],
  }),
  readAt: Nullable(
    Timestamp,
    "Null: unread. What the owner did, and payments as usual, are read from the start",
  ),
});
export type Notification = Static<typeof Notification>;
export const UnreadCount = Type.Object({
  unread: Type.Integer({ description: "How many are unread, counted up to 1,000" }),
});
/** A way out of the app that failed since its last success. */
export const FailingChannel = Type.Object({
  channel: OneOf(["webhook", "email", "push"]),
  id: Nullable(Id, "Of the webhook or the device"),
  name: Type.String({ description: "The URL, the address, or the device's label" }),
  since: Timestamp,
  error: Type.String({ description: "The last error" }),
});
export type FailingChannel = Static<typeof FailingChannel>;
export const NotificationPage = Type.Object({
  ...Page(Notification).properties,
  ...UnreadCount.properties,
  failing: Type.Array(FailingChannel, {
    description: "Where notifications could not be sent since the last success",
  }),
});
export const NotificationQuery = Strict({
  ...pageQuery,
  type: Type.Optional(OneOf(NOTIFICATION_TYPES, "Only of this type")),
  agentId: Type.Optional(Described(Id, "Only of this agent")),
  unread: Type.Optional(Flag),
});
export const ReadNotificationsBody = Strict({
  ids: Type.Optional(
    Type.Array(Id, {
      minItems: 1,
      maxItems: 100,
      description: "Without `ids` and `before`: all that exist now",
    }),
  ),
  before: Type.Optional(
    Described(Timestamp, "Only those of this time or earlier: newer ones were not seen yet"),
  ),
});

const WebhookUrl = Type.String({
  minLength: 1,
  maxLength: 2_000,
  description: "https, and public. Redirects are not followed",
  examples: ["https://hooks.example.com/purser"],
});
const WebhookTypes = Type.Array(OneOf(["*", ...NOTIFICATION_TYPES]), {
  minItems: 1,
  maxItems: 40,
  uniqueItems: true,
  description: '`["*"]` is every type, including new ones',
  examples: [["payment.settled", "agent.limit_reached"]],
});
const WebhookDescription = Type.String({ maxLength: 200, pattern: "^[^\\u0000]*$" });

export const Webhook = Type.Object({
  id: Id,
  url: WebhookUrl,
  types: WebhookTypes,
  description: Type.String(),
  status: OneOf(
    ["active", "paused", "disabled"],
    "paused: by you. disabled: by Purser, because it failed for too long or returned 410. Both get no deliveries",
  ),
  disabledReason: Nullable(Type.String()),
  failingSince: Nullable(Timestamp, "Since when every delivery failed; null: it works"),
  createdAt: Timestamp,
  secretHint: Type.String({ description: "The secret's last characters", examples: ["…x9Qk"] }),
  previousSecretUntil: Nullable(
    Timestamp,
    "Until then each delivery is also signed with the previous secret",
  ),
});
export type Webhook = Static<typeof Webhook>;
export const WebhookPage = Page(Webhook);

export const NewWebhookBody = Strict({
  url: WebhookUrl,
  types: WebhookTypes,
  description: Type.Optional(WebhookDescription),
});
export const ChangeWebhookBody = Strict({
  url: Type.Optional(WebhookUrl),
  types: Type.Optional(WebhookTypes),
  description: Type.Optional(WebhookDescription),
  status: Type.Optional(OneOf(["active", "paused"], "active also enables a disabled webhook")),
});
export const RotateSecretBody = Strict({
  graceHours: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 168,
      default: 24,
      description: "How long deliveries are signed with the old secret as well; 0: not at all",
    }),
  ),
});
export const WebhookWithSecret = Type.Object({
  webhook: Webhook,
  secret: Type.String({
    pattern: "^whsec_[A-Za-z0-9+/]{43}=$",
    description: "Shown only once. Standard Webhooks: the HMAC key in base64, after `whsec_`",
    examples: ["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDWAGuvcVYkb8="],
  }),
});

export const DELIVERY_STATES = ["waiting", "delivered", "failed", "given_up"] as const;
export const WebhookDelivery = Type.Object({
  id: Id,
  notificationId: Described(Id, "The `webhook-id`"),
  type: NotificationType,
  status: OneOf(
    DELIVERY_STATES,
    "failed: it is tried again at `nextAttemptAt`. given_up: only a resend sends it again",
  ),
  attempts: Type.Integer(),
  lastStatus: Nullable(Type.Integer({ description: "The last HTTP status of the server" })),
  lastError: Nullable(Type.String()),
  nextAttemptAt: Nullable(Timestamp),
  deliveredAt: Nullable(Timestamp),
  createdAt: Timestamp,
});
export type WebhookDelivery = Static<typeof WebhookDelivery>;
export const WebhookDeliveryPage = Page(WebhookDelivery);
export const DeliveryQuery = Strict({
  ...pageQuery,
  status: Type.Optional(OneOf(DELIVERY_STATES)),
});
export const DeliveryParams = Strict({
  id: Type.String({ minLength: 1, maxLength: 64 }),
  deliveryId: Type.String({ minLength: 1, maxLength: 64 }),
});
