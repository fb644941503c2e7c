/** The texts of mails: one sentence of ours for each event, and the links. */
import { isRecord } from "../../core/foreign-text.ts";
import { nameOf, type Letter, type Line, type Link } from "./mail-layout.ts";
import { AN_AGENT, headline } from "./sentences.ts";

/** The result of purser_mail_take. */
export interface MailBatch {
  count: number;
  from: string | null;
  to: string | null;
  /** More events wait for the next mail. */
  isMore: boolean;
  groups: {
    type: string;
    agentId: string | null;
    agentName: string | null;
    count: number;
    amount: string | null;
  }[];
  /** Groups that did not fit, and the number of their events. */
  leftOut: { groups: number; count: number };
  items: MailItem[];
}

interface MailItem {
  type: string;
  agentId: string | null;
  agentName: string | null;
  subjectId: string;
  data: unknown;
  createdAt: string;
}

export type MailContent =
  | { kind: "confirmation"; owner: string }
  | { kind: "address"; owner: string; change: "asked" | "moved" | "removed" | "away" }
  | { kind: "urgent" | "digest"; owner: string; batch: MailBatch };

interface Place {
  /** Without a trailing slash. */
  publicUrl: string;
  /** The link of this one mail, with its own token. */
  confirmUrl: string;
}

export function letterOf(content: MailContent, place: Place): Letter {
  switch (content.kind) {
    case "confirmation":
      return confirmation(content.owner, place);
    case "address":
      return addressChanged(content, place);
    default:
      return report(content, place);
  }
}

const SITE = /^https?:\/\//;
const nameOfPlace = ({ publicUrl }: Place): string => publicUrl.replace(SITE, "");

function confirmation(owner: string, place: Place): Letter {
  return {
    subject: "Confirm this e-mail address for Purser",
    title: "Confirm this e-mail address",
    lead: [
      `The owner of the account ${owner} at ${nameOfPlace(place)} wants to receive e-mails about their agents at this address.`,
      "If that is you, open the link and press Confirm. The link is valid for a day, and you must be signed in to this account.",
      "If that is not you, ignore this mail. We send nothing more.",
    ],
    lines: [],
    action: { label: "Confirm this address", url: place.confirmUrl },
    foot: [{ text: "Opening the link does not change anything yet." }],
  };
}

const ADDRESS_CHANGES = {
  asked:
    "A different address was entered for these mails. We send them here until it is confirmed.",
  moved: "A different address was confirmed. These mails now go there.",
  removed: "This address was removed. We send nothing more here.",
  away: "All agents of this account were moved to its recovery wallet, and this address was removed. We send nothing more here. The new owner can set an address.",
} as const;

function addressChanged(
  { owner, change }: { owner: string; change: keyof typeof ADDRESS_CHANGES },
  place: Place,
): Letter {
  if (change === "away")
    return {
      subject: "Your agents at Purser have a new owner",
      title: "Your agents have a new owner",
      lead: [ADDRESS_CHANGES.away, `Both signed this: ${owner} and its recovery wallet.`],
      lines: [],
      foot: [{ text: `Purser at ${nameOfPlace(place)}` }],
    };
  return {
    subject: "Your e-mail address at Purser was changed",
    title: "The e-mail address for your agents was changed",
    lead: [
      ADDRESS_CHANGES[change],
      `The change was made in a session of the account ${owner}. If that was not you, end the other sessions and pause your agents.`,
    ],
    lines: [],
    action: { label: "End the other sessions", url: link(place, "/settings?do=end-sessions") },
    foot: [{ text: `Purser at ${nameOfPlace(place)}` }],
  };
}

function report(
  { kind, owner, batch }: { kind: "urgent" | "digest"; owner: string; batch: MailBatch },
  place: Place,
): Letter {
  const isUrgent = kind === "urgent";
  const isOne = isUrgent && batch.count === 1;
  const items = batch.items.map((item) => itemLine(item, place, isOne));
  const more = isUrgent ? batch.count - batch.items.length : 0;
  const [first] = batch.items;
  const title = isUrgent
    ? isOne && first
      ? headline(first, nameOf(first.agentName, AN_AGENT))
      : `${batch.count} alerts need your attention`
    : "What your agents did";
  // A digest counts everything, and lists the newest events that are not plain payments.
  const lines = isUrgent
    ? items
    : [...batch.groups.map((group) => groupLine(group, place)), ...leftOut(batch), ...items];
  const lead = isUrgent ? [] : [`${span(batch)}, for the account ${owner}.`];
  if (batch.isMore)
    lead.push(
      `This mail lists the first ${batch.count} events. Later events are in the next mail.`,
    );
  return {
    subject: isUrgent ? `Purser: ${title}` : `Purser: ${plural(batch.count, "event")}`,
    title,
    lead,
    lines:
      more > 0
        ? [
            ...lines,
            { text: `And ${plural(more, "more")}. See the app for the full list.`, links: [] },
          ]
        : lines,
    action: { label: "See all in the app", url: link(place, "/notifications") },
    foot: [
      {
        text: "Opening a link does not change anything: the app asks you to confirm with a button.",
      },
      {
        text: `You get this because you confirmed this address for the account ${owner}.`,
        links: [{ label: "Change e-mail settings", url: link(place, "/notifications/email") }],
      },
    ],
  };
}

const leftOut = ({ leftOut: { groups, count } }: MailBatch): Line[] =>
  groups === 0
    ? []
    : [
        {
          text: `And ${plural(count, "event")} in ${plural(groups, "more line")}. See the app for the full list.`,
        },
      ];

const minute = (iso: string): string => `${iso.slice(0, 16).replace("T", " ")} UTC`;
const span = ({ from, to }: MailBatch): string =>
  from === null || to === null ? "Recently" : `From ${minute(from)} to ${minute(to)}`;
const plural = (count: number, noun: string): string =>
  `${count} ${noun === "more" || count === 1 ? noun : `${noun}s`}`;
const link = ({ publicUrl }: Place, path: string): string => `${publicUrl}${path}`;

const GROUPS: Readonly<Record<string, readonly [one: string, many: string]>> = {
  "payment.settled": ["payment", "payments"],
  "payment.failed": ["payment reversed by the chain", "payments reversed by the chain"],
  "payment.blocked": ["payment refused by a rule", "payments refused by rules"],
  "payment.undelivered": ["payment not delivered", "payments not delivered"],
  "approval.requested": ["request for approval", "requests for approval"],
  "approval.granted": ["request approved", "requests approved"],
  "approval.declined": ["request declined", "requests declined"],
  "approval.expired": ["request expired", "requests expired"],
  "agent.limit_reached": ["warning about a limit", "warnings about a limit"],
  "budget.limit_reached": ["warning about a budget", "warnings about a budget"],
  "agent.low_balance": ["warning about a low balance", "warnings about a low balance"],
  "agent.funded": ["deposit", "deposits"],
  "agent.paused": ["agent paused by a rule", "agents paused by rules"],
  "owner.stopped": ["stop of everything", "stops of everything"],
  "owner.resumed": ["end of a stop", "ends of stops"],
  "policy.changed": ["change of rules", "changes of rules"],
  "order.waiting": ["order that waits for signatures", "orders that wait for signatures"],
  "order.carried_out": ["signed order carried out", "signed orders carried out"],
  "order.ended": ["order that ended unsigned", "orders that ended unsigned"],
  "team.invited": ["invitation to a team", "invitations to teams"],
  "key.created": ["new key", "new keys"],
  "key.revoked": ["key revoked", "keys revoked"],
  "session.created": ["sign-in", "sign-ins"],
  "withdrawal.settled": ["withdrawal", "withdrawals"],
  "channel.opened": ["payment channel opened", "payment channels opened"],
  "channel.low": ["payment channel with little left", "payment channels with little left"],
  "channel.closed": ["payment channel closed", "payment channels closed"],
  "channel.refused": ["payment channel refused", "payment channels refused"],
  "listing.flagged": ["listing flagged", "listings flagged"],
  "settlement.settled": ["payment to you", "payments to you"],
  "settlement.failed": ["payment to you that failed", "payments to you that failed"],
  "refund.settled": ["refund", "refunds"],
  "refund.failed": ["refund that failed", "refunds that failed"],
  "webhook.disabled": ["webhook disabled", "webhooks disabled"],
};

function groupLine(
  { type, agentId, agentName, count, amount }: MailBatch["groups"][0],
  place: Place,
): Line {
  const [one, many] = GROUPS[type] ?? [type, type];
  const sum = amount === null ? "" : `, ${amount} USDC in total`;
  const whose = agentId === null ? "" : `${nameOf(agentName, AN_AGENT)}: `;
  return {
    text: `${whose}${count} ${count === 1 ? one : many}${sum}`,
    links:
      agentId !== null && type === "payment.settled"
        ? [
            { label: "View", url: link(place, `/agents/${agentId}`) },
            { label: "Pause this agent", url: link(place, `/agents/${agentId}?do=pause`) },
          ]
        : [],
  };
}

const QUOTES = {
  label: "Label",
  name: "Name",
  site: "Site",
  url: "Address",
  reason: "Reason",
  memo: "Memo",
  userAgent: "Device",
  errorMessage: "Message",
} as const;

/** If the mail has only one event, its title already contains the sentence. */
function itemLine(item: MailItem, place: Place, isTitled: boolean): Line {
  const foreign = isRecord(item.data) ? item.data["thirdParty"] : undefined;
  const quotes = Object.entries(QUOTES).flatMap(([name, what]) => {
    const words = isRecord(foreign) ? foreign[name] : undefined;
    return typeof words === "string" && words !== "" ? [[what, words] as const] : [];
  });
  return {
    text: isTitled
      ? minute(item.createdAt)
      : `${headline(item, nameOf(item.agentName, AN_AGENT))} (${minute(item.createdAt)})`,
    quotes,
    links: linksOf(item, place),
  };
}

const ID = /^[A-Za-z0-9_-]{1,64}$/;

/** Tightening is one click away; there is no link for loosening. */
function linksOf({ type, agentId, subjectId }: MailItem, place: Place): Link[] {
  const links: Link[] = [];
  const add = (label: string, path: string): void =>
    void links.push({ label, url: link(place, path) });
  if (type === "approval.requested" && ID.test(subjectId))
    add("Decide", `/approvals?approval=${subjectId}`);
  if (type === "session.created") add("End the other sessions", "/settings?do=end-sessions");
  if (type === "budget.limit_reached") add("View", "/budgets");
  if (type === "webhook.disabled") add("View", "/notifications/webhooks");
  if (agentId === null || !ID.test(agentId)) return links;
  if (/^(key|policy)\./.test(type))
    add("View", `/agents/${agentId}/${type.startsWith("key") ? "keys" : "rules"}`);
  if (!/^approval\.(granted|declined|expired)$|^agent\.funded$/.test(type))
    add("Pause this agent", `/agents/${agentId}?do=pause`);
  if (/^(agent\.limit_reached|payment\.blocked|approval\.requested)$/.test(type))
    add("Lower its daily limit", `/agents/${agentId}?do=lower`);
  return links;
}
