/** The text and the place in the app of each event, written once for the app, mails and push messages. */
import { isRecord, plainWords } from "../../core/foreign-text.ts";

interface Event {
  type: string;
  data: unknown;
}

/** Only numbers, codes and addresses: other forms are left out. */
const FACT = /^[\w.:-]{1,60}$/;
function fact(data: unknown, name: string): string {
  const value = isRecord(data) ? data[name] : undefined;
  const text = typeof value === "number" ? String(value) : value;
  return typeof text === "string" && FACT.test(text) ? text : "?";
}

const LIMITS: Readonly<Record<string, string>> = {
  "24h": "daily",
  "7d": "weekly",
  "30d": "monthly",
};
const isCorrected = (data: unknown): boolean => isRecord(data) && data["corrected"] === true;

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
  "passkeys.signed": "The list of your passkeys was changed",
  "payout.named": "Your payout address was named or changed; a change waits 24 hours",
  "owner.payee_denied": "A payee was added to Never pay",
  "owner.payee_allowed": "A payee was removed from Never pay",
  "members.signed": "The members of the team were changed",
  "owner.moved": "Your account was moved to another wallet",
  "owner.received": "You received the agents of another wallet",
};

const ORDERS: Readonly<Record<string, string>> = {
  AgentPolicy: "the rules of an agent",
  IssueKey: "a key for an agent",
  ApprovePayment: "a payment",
  SecondWallet: "the recovery wallet",
  MoveOwner: "a move to the recovery wallet",
  Resume: "the end of a stop",
  PayoutAddress: "the payout address",
  AllowPayeeAgain: "a denied payee",
  Budget: "a budget",
  Members: "the members",
  Withdraw: "a withdrawal",
};
const ENDS: Readonly<Record<string, string>> = {
  withdrawn: "was given up",
  expired: "expired unsigned",
  members: "ended, because the members changed",
  outdated: "ended, because it would do something else by now",
};
const orderOf = (data: unknown): string =>
  `A team's order about ${ORDERS[fact(data, "kind")] ?? "its account"}`;

function changeOf(data: unknown, who: string): string {
  const change = fact(data, "change");
  const words = CHANGES[change] ?? change.replaceAll(/[._]/g, " ");
  return fact(data, "agentId") === "?" ? words : `${who} ${words}`;
}

/** By its name, if that has only letters, digits and spaces: a mail program makes a link of anything else. */
function budgetOf(data: unknown): string {
  const name = isRecord(data) ? data["name"] : undefined;
  const isPlain = typeof name === "string" && /^[\p{L}\p{N} _-]{1,60}$/u.test(name);
  return isPlain ? `the budget "${name}"` : "a budget";
}

/** The name of an agent without one. */
export const AN_AGENT = "An agent";

/** Amounts and limits are our own facts; `who`, the agent's name, comes from the owner. */
export function headline(
  { type, data }: Event,
  who: string,
  money: (amount: string) => string = (amount) => amount,
): string {
  const usdc = (name: string): string => `${money(fact(data, name))} USDC`;
  const amount = usdc("amount");
  const sentences: Readonly<Record<string, string>> = {
    "payment.settled": `${who} paid ${fact(data, "charged") === "?" ? amount : usdc("charged")}`,
    "payment.failed": `The chain reversed a payment of ${amount} that ${who} ${fact(data, "kind") === "incoming" ? "had received" : "had made"}`,
    "payment.blocked": `A payment of ${amount} by ${who} was refused: ${fact(data, "denialCode").replaceAll("_", " ")}`,
    "payment.undelivered":
      fact(data, "failureCode") === "charge_not_known"
        ? `Responses to requests of ${who} were lost, and it is not known which of them the seller charged`
        : `${who} paid ${amount}, and the seller did not deliver`,
    "approval.requested": `${who} requests approval for ${amount}`,
    "approval.granted": `You allowed ${who} to pay ${amount}`,
    "approval.declined": `You declined ${amount} for ${who}`,
    "approval.expired": `A request of ${who} for ${amount} expired`,
    "agent.limit_reached": `${who} has used ${fact(data, "percent")} % of its ${LIMITS[fact(data, "window")] ?? "daily"} limit of ${usdc("limit")}`,
    "budget.limit_reached": `The agents of ${budgetOf(data)} have used ${fact(data, "percent")} % of its ${LIMITS[fact(data, "window")] ?? "daily"} limit of ${usdc("limit")}`,
    "agent.low_balance": `${who} has only ${usdc("balance")} left`,
    "agent.funded": `${who} received ${amount}`,
    "agent.paused": `${who} was paused by a rule: ${fact(data, "rule").replaceAll("_", " ")}`,
    "policy.changed": changeOf(data, who),
    "order.waiting": `${orderOf(data)} waits for signatures`,
    "order.carried_out": `${orderOf(data)} was signed and carried out`,
    "order.ended": `${orderOf(data)} ${ENDS[fact(data, "reason")] ?? "ended"}`,
    "team.invited": `You are invited to a team as ${fact(data, "role")}`,
    "owner.stopped": `Everything is stopped: ${fact(data, "agents")} ${fact(data, "agents") === "1" ? "agent was" : "agents were"} paused`,
    "owner.resumed": `The stop ended: ${fact(data, "agents")} ${fact(data, "agents") === "1" ? "agent" : "agents"} can pay again`,
    "key.created": `A key was created for ${who}`,
    "key.revoked": `A key of ${who} was revoked`,
    "session.created": `New sign-in to your account from ${fact(data, "ip")}`,
    "withdrawal.settled": `${amount} was withdrawn from ${who}`,
    "channel.opened": `${who} opened a payment channel with ${amount}`,
    "channel.low": `A payment channel of ${who} has only ${usdc("left")} left${needsOf(data) ? ", and your limits allow no other deposit" : ""}`,
    "channel.closed": `A payment channel of ${who} ${fact(data, "reason") === "unused" ? "was not used for 30 days and " : ""}is closed: ${usdc("returned")} came back`,
    "channel.refused": `A seller broke the rules of a payment channel of ${who}, which is being closed`,
    "listing.flagged": "One of your listings was flagged",
    "settlement.settled": `You were paid ${amount}`,
    "settlement.failed": isCorrected(data)
      ? `A settled payment of ${amount} to you was reversed`
      : `A payment of ${amount} to you failed`,
    "refund.settled": `You refunded ${amount}`,
    "refund.failed": `A refund of ${amount} failed`,
    "webhook.disabled": "A webhook was disabled",
    "webhook.test": "Webhook test",
  };
  return sentences[type] ?? type;
}

/** What the owner would have to sign. */
const needsOf = (data: unknown): Record<string, unknown> | undefined =>
  isRecord(data) && isRecord(data["needs"]) ? data["needs"] : undefined;

const DETAILS = {
  payee: "To",
  from: "From",
  payer: "From",
  failureCode: "Code",
  errorReason: "Code",
  expiresAt: "Open until",
} as const;
const NEEDS = {
  channelHeld: "Held in channels, at least",
  payeeChannelHeld: "Held in channels with this payee, at least",
} as const;

/** 2.5 as 2.50. */
export const withCents = (amount: string): string =>
  amount.replace(/^(\d+)(?:\.(\d))?$/, (_, whole: string, tenths = "0") => `${whole}.${tenths}0`);

/** The facts beside the sentence. Text of third parties stays in `data.thirdParty`. */
export const detailOf = ({ type, data }: Event): string =>
  [
    ...Object.entries({
      ...DETAILS,
      ...(type === "key.created" && { expiresAt: "Valid until" }),
    }).map(([name, what]) => [what, fact(data, name)] as const),
    ...Object.entries(NEEDS).map(([name, what]) => [what, fact(needsOf(data), name)] as const),
  ]
    .filter(([, value]) => value !== "?")
    .map(([what, value]) => `${what}: ${value}`)
    .join(" · ");

const MAX_NAME = 80;

export interface Notified extends Event {
  agentId: string | null;
  subjectId: string;
  agentName: string | undefined;
}

/** What the app and a push message show of a notification, and the page that it opens. */
export const describe = (event: Notified): { title: string; detail: string; path: string } => ({
  title: headline(event, plainWords(event.agentName, MAX_NAME) || AN_AGENT, withCents),
  detail: detailOf(event),
  path: placeOf(event),
});

/** The page where something can be done. It shows; nothing is decided by opening it. */
export function placeOf({
  type,
  agentId,
  subjectId,
}: Pick<Notified, "type" | "agentId" | "subjectId">): string {
  const subject = encodeURIComponent(subjectId);
  if (type.startsWith("approval.")) return `/approvals?approval=${subject}`;
  if (type.startsWith("order.")) return `/waiting?order=${subject}`;
  if (type === "team.invited") return `/join?order=${subject}`;
  if (type === "session.created") return "/settings";
  if (type.startsWith("webhook.")) return `/notifications/webhooks?webhook=${subject}`;
  if (type === "listing.flagged") return `/marketplace/${subject}`;
  if (type.startsWith("settlement.")) return `/merchant?settlement=${subject}`;
  if (type.startsWith("refund.")) return "/merchant";
  if (type === "budget.limit_reached") return "/budgets";
  if (agentId === null) return "/settings";
  const agent = `/agents/${encodeURIComponent(agentId)}`;
  if (/^payment\.|^withdrawal\.settled$|^agent\.funded$/.test(type))
    return `${agent}?payment=${subject}`;
  if (type.startsWith("key.")) return `${agent}/keys`;
  if (type.startsWith("channel.")) return `${agent}/channels`;
  return type === "policy.changed" ? `${agent}/rules` : agent;
}
