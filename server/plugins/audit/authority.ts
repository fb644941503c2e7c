/**
 * Checks that the owner's signature permits an audit entry. Every order is used once, for the action of its kind, and
 * the rules of each agent are followed from entry to entry. Pure, like verify.ts.
 */
import {
  AGENT_FIELDS,
  PAYEE_FIELDS,
  settingsFromWire,
  settingsOnWire,
  type Field,
} from "../../../packages/rules/src/fields.ts";
import { TIME, type Wire } from "../../../packages/rules/src/kinds.ts";
import { formatAtomic } from "../../core/money.ts";
import { isPasskeySignature, type PublicKey } from "../../../packages/rules/src/passkeys.ts";
import { zeroAddress } from "viem";
import {
  addressOfTeam,
  faultOfMembers,
  hasNoWallet,
  listOf,
  type MemberList,
} from "../../core/teams.ts";
import { payoutAt } from "../../core/payout.ts";
import {
  CONNECTION_LABEL,
  readOptional,
  rulesOfPolicy,
  type AgentPolicyOrder,
  type IssueKeyOrder,
  type OrderKind,
  type Orders,
} from "../../core/orders.ts";
import { loosens, payeeKey, type RulesInForce } from "../../core/rules.ts";
import { BudgetFacts } from "./budgets.ts";

/** The parsed text of an entry. */
export interface EntryBody {
  seq: number;
  id: string;
  at: string;
  ownerId: string;
  owner: string;
  /** The chain of the owner's contract; 0 for a plain key. */
  ownerChainId: number;
  agentId: string | null;
  actor: string;
  action: string;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
  requestId: string | null;
  proof: Proof | null;
}

/**
 * A signed text, or a signed order (EIP-712 typed data) by its digest, with its signers. A small order is included
 * here, a long one is next to the entry. `chainId`: of the signer's contract.
 */
export type Proof =
  | { kind: "message"; message: string; signer: string; chainId: number; signature: string }
  | { kind: "order"; digest: string; order?: unknown; signers: SignedBy[] };

export interface SignedBy {
  signer: string;
  chainId: number;
  signature: string;
}

/** The signed content of an entry: a sign-in message, or an order. */
export type Signed =
  | { kind: "message"; digest: string; message: string; signer: string }
  | {
      [K in OrderKind]: { kind: K; digest: string; order: Orders[K]; chainId: number };
    }[OrderKind];

/** Actions that are impossible without a signature, and the kind of content that is signed. */
const SIGNED_AS: Readonly<Record<string, Signed["kind"]>> = {
  "session.created": "message",
  "policy.signed": "AgentPolicy",
  "key.signed": "IssueKey",
  "payment.approved": "ApprovePayment",
  "withdrawal.ordered": "Withdraw",
  "second.named": "SecondWallet",
  "passkeys.signed": "Passkeys",
  "payout.named": "PayoutAddress",
  "members.signed": "Members",
  "owner.moved": "MoveOwner",
  "owner.received": "MoveOwner",
  "resume.signed": "Resume",
  "allow_again.signed": "AllowPayeeAgain",
  "budget.signed": "Budget",
};
/** Actions that directly follow the entry of their order. */
const AFTER_ORDER: Readonly<Record<string, OrderKind>> = {
  "agent.created": "AgentPolicy",
  "agent.resumed": "AgentPolicy",
  "key.created": "IssueKey",
  "key.rotated": "IssueKey",
  "connection.granted": "IssueKey",
  "approval.granted": "ApprovePayment",
  "owner.resumed": "Resume",
  "owner.payee_allowed": "AllowPayeeAgain",
  "budget.archived": "Budget",
};

type Facts = Record<string, unknown>;

/**
 * An agent's facts in the form of entries. After a move from another owner, `rules` are unknown until a policy is
 * signed.
 */
interface AgentFacts {
  isReceived?: boolean;
  wallet?: string;
  status: RulesInForce["status"];
  rules?: Facts;
  payees: Facts[];
  /** The payees before the most recently signed policy. */
  formerPayees?: Facts[];
  /**
   * An unsigned entry only counted the payees that it removed: the remaining ones are unknown until a policy is signed.
   */
  hasUnnamedRemovals?: boolean;
}

const OTHER = "differs from its signed order";
const UNFOUNDED = "does not follow from the rules in force before it";

export class Authority {
  /** The digests of what was signed. */
  readonly used = new Set<string>();
  readonly #agents = new Map<string, AgentFacts>();
  readonly #withdrawals = new Map<string, Facts>();
  readonly #budgets = new BudgetFacts();
  /** The order of the previous entry, until the entry that it permits. */
  #open: Signed | undefined;
  /** The recovery wallet that the owner named last. */
  second: { address: string; chainId: number } | undefined;
  /** The passkeys that the owner listed last; undefined before the first list. */
  passkeys: readonly PublicKey[] | undefined;
  /** The members of a team, as its newest list names them. */
  members: MemberList | undefined;
  #lists = 0;
  readonly #payouts: Orders["PayoutAddress"][] = [];

  /** Where passkeys and the recovery wallet may withdraw to. */
  homeOf({ owner, ownerChainId, at }: EntryBody): string | undefined {
    if (!hasNoWallet(ownerChainId)) return owner;
    return payoutAt(this.#payouts, BigInt(Math.floor(Date.parse(at) / 1000)))?.address;
  }

  /** Undefined if the entry is valid. The signer and the digest of `signed` were verified before. */
  faultOf(body: EntryBody, signed: Signed | undefined): string | undefined {
    const { action } = body;
    const needed = SIGNED_AS[action];
    if (needed !== signed?.kind)
      return signed === undefined
        ? `is ${action} without a signature`
        : `is ${action}, with the signature of a different action`;
    const open = this.#open;
    this.#open = undefined;
    try {
      return signed ? this.#signedFault(body, signed) : this.#unsignedFault(body, open);
    } catch {
      return "has content that cannot be read";
    }
  }

  #signedFault(body: EntryBody, signed: Signed): string | undefined {
    if (this.used.has(signed.digest)) return "has a signature that was used before";
    this.used.add(signed.digest);
    if (signed.kind === "message") return signInFault(body, signed);
    const { order, kind, chainId } = signed;
    const after = body.after ?? {};
    const { agent = body.agentId } = order as { agent?: string };
    // A move has no nonce besides its order.
    const isSame =
      agent === body.agentId && (kind === "MoveOwner" || after["nonce"] === order.nonce);
    if (!isSame) return OTHER;
    if ("wallet" in order && !this.#hasWallet(body.agentId, order.wallet)) return OTHER;
    if (kind === "AgentPolicy") return this.#usePolicy(body, signed);
    if (kind === "Withdraw") {
      const { to, amount: amountAtomic, nonce } = order;
      const facts = { to: to.toLowerCase(), amountAtomic, network: `eip155:${chainId}`, nonce };
      this.#withdrawals.set(asText(after["paymentId"]), facts);
      return holds(facts, after) ? undefined : OTHER;
    }
    if (kind === "SecondWallet") {
      this.second = { address: order.second.toLowerCase(), chainId: Number(order.secondChain) };
      return isAddress(order.owner, body.owner) ? undefined : OTHER;
    }
    if (kind === "Members") return this.#membersFault(body, signed);
    if (kind === "Passkeys" || kind === "PayoutAddress") return this.#listFault(body, signed);
    if (kind === "MoveOwner") return this.#move(body, order);
    const isOfOwner = kind === "Resume" || kind === "AllowPayeeAgain" || kind === "Budget";
    if (isOfOwner && !isAddress(order.owner, body.owner)) return OTHER;
    this.#open = signed;
    return undefined;
  }

  /** The signatures under it were counted before, with the members of the list that it replaces. */
  #membersFault(
    { owner }: EntryBody,
    { order, digest }: Signed & { kind: "Members" },
  ): string | undefined {
    const before = this.members;
    const isOwn = before
      ? isAddress(order.owner, owner)
      : order.owner === zeroAddress && addressOfTeam(digest as `0x${string}`) === owner;
    if (!isOwn || order.version !== String((before?.version ?? 0) + 1)) return OTHER;
    const fault = faultOfMembers(order, before);
    if (fault !== undefined) return `lists members that ${fault}`;
    this.members = listOf(order);
    return undefined;
  }

  #listFault(
    { owner }: EntryBody,
    signed: Signed & { kind: "Passkeys" | "PayoutAddress" },
  ): string | undefined {
    if (!isAddress(signed.order.owner, owner)) return OTHER;
    if (signed.kind === "PayoutAddress") {
      this.#payouts.push(signed.order);
      return signed.order.version === String(this.#payouts.length) ? undefined : OTHER;
    }
    this.#lists += 1;
    this.passkeys = signed.order.passkeys;
    return signed.order.version === String(this.#lists) ? undefined : OTHER;
  }

  #usePolicy(
    { agentId, after }: EntryBody,
    signed: Signed & { kind: "AgentPolicy" },
  ): string | undefined {
    if (after?.["version"] !== Number(signed.order.version)) return OTHER;
    const { payees, rules, hasUnnamedRemovals, ...known } = this.#agent(agentId);
    const isNew = signed.order.version === "1";
    const isKnown = isNew || (rules !== undefined && hasUnnamedRemovals !== true);
    this.#agents.set(agentId ?? "", {
      ...known,
      ...factsOf(signed.order),
      ...(isKnown && { formerPayees: payees }),
    });
    this.#open = signed;
    return undefined;
  }

  #move({ action, owner, before, after }: EntryBody, order: Orders["MoveOwner"]) {
    const agents = (after?.["agents"] ?? []) as string[];
    const isSame = before?.["owner"] === order.from && after?.["owner"] === order.to;
    const own = action === "owner.moved" ? order.from : order.to;
    if (!isSame || !isAddress(own, owner)) return OTHER;
    for (const id of agents)
      if (action === "owner.moved") this.#agents.delete(id);
      else this.#agents.set(id, { isReceived: true, status: "paused", payees: [] });
    this.#budgets.moved(action);
    return undefined;
  }

  #unsignedFault(body: EntryBody, open: Signed | undefined): string | undefined {
    const { action, agentId, after } = body;
    const needed = AFTER_ORDER[action];
    const order = open && "order" in open ? (open.order as { agent?: string }) : undefined;
    const isOpen = order !== undefined && (order.agent ?? null) === agentId;
    if (needed !== undefined) {
      if (!isOpen || open?.kind !== needed) return `is ${action} without a signed order`;
      return this.#permittedFault(body, open);
    }
    if (/^(agent\.updated$|allowlist\.)/.test(action)) {
      if (isOpen) this.#open = open;
      return this.#changeFault(body, isOpen ? open : undefined);
    }
    if (action === "budget.created" || action === "budget.changed") {
      const fault = this.#budgets.faultOf(body, open?.kind === "Budget" ? open.order : undefined);
      if (fault) return fault;
    }
    if (action === "agent.paused" || action === "agent.archived") {
      const known = this.#agents.get(agentId ?? "");
      if (known) known.status = action === "agent.paused" ? "paused" : "archived";
    }
    if (action.startsWith("withdrawal.")) {
      const ordered = this.#withdrawals.get(asText(after?.["paymentId"]));
      // If the agent moved, the order may be in the other owner's chain.
      if (ordered === undefined)
        return this.#agent(agentId).isReceived ? undefined : `is ${action} without an order`;
      return holds(ordered, after ?? {}) ? undefined : "differs from its order";
    }
    return undefined;
  }

  /** Checks an action that the order of the previous entry permits. */
  #permittedFault(body: EntryBody, open: Signed): string | undefined {
    const { action, agentId } = body;
    const after = body.after ?? {};
    if (open.kind === "IssueKey") return keyFault(action, after, open.order);
    if (open.kind === "ApprovePayment") {
      const { approvalId, payee, maxAmount, site, nonce: orderNonce } = open.order;
      const amount = formatAtomic(BigInt(maxAmount));
      const facts = { approvalId, payee, amount, site: site || null, orderNonce };
      return holds({ ...facts, network: `eip155:${open.chainId}` }, after) ? undefined : OTHER;
    }
    if (open.kind === "Resume") return undefined;
    if (open.kind === "AllowPayeeAgain")
      return body.before?.["payee"] === open.order.payee ? undefined : OTHER;
    if (open.kind === "Budget") return this.#budgets.archivedFault(body, open.order);
    if (open.kind !== "AgentPolicy") return OTHER;
    const agent = this.#agent(agentId);
    agent.status = "active";
    if (action === "agent.resumed") return after["status"] === "active" ? undefined : OTHER;
    const { wallet: walletAddress, version } = open.order;
    const facts = { walletAddress, network: `eip155:${open.chainId}` };
    const isListed =
      "allowlist" in after
        ? isSameList(after["allowlist"], agent.payees)
        : saysChange(body, difference([], agent.payees), open.digest);
    const isSame = holds(facts, after) && holdsRules(agent.rules ?? {}, after) && isListed;
    return isSame && version === "1" && after["status"] === "active" ? undefined : OTHER;
  }

  /** A change must equal the policy of the previous entry, or only tighten the rules in force. */
  #changeFault(body: EntryBody, order: Signed | undefined): string | undefined {
    const { action, agentId, before, after } = body;
    const agent = this.#agents.get(agentId ?? "");
    if (!agent) return "is about an agent that never belonged to this owner";
    const { rules, payees } = agent;
    if (rules === undefined) return undefined;
    if (action === "agent.updated") {
      if (order && holds(after ?? {}, rules)) return undefined;
      const isFrom =
        holds(before ?? {}, rules) && Object.keys(after ?? {}).every((key) => key in rules);
      const wanted = { ...agent, rules: { ...rules, ...after } };
      return isFrom ? this.#tighten(body, { from: agent, to: wanted }) : UNFOUNDED;
    }
    if (order && isSignedChange(body, agent, order)) return undefined;
    const change = changeIn(body);
    if (change === undefined) {
      if (!countsRemovals(body)) return UNFOUNDED;
      this.#agents.set(agentId ?? "", { ...agent, hasUnnamedRemovals: true });
      return undefined;
    }
    // After removals that were only counted, the remaining payees are unknown: then the entry's own payees are
    // compared.
    const from = agent.hasUnnamedRemovals ? change.before : payees;
    const texts = new Set(from.map(textOf));
    if (!change.before.every((payee) => texts.has(textOf(payee)))) return UNFOUNDED;
    const gone = new Set(change.before.map(keyOf));
    const kept = from.filter((payee) => !gone.has(keyOf(payee)));
    const to = [...kept, ...change.after];
    if (new Set(to.map(keyOf)).size < to.length) return UNFOUNDED;
    return this.#tighten(body, { from: { ...agent, payees: from }, to: { ...agent, payees: to } });
  }

  #tighten(
    { action, agentId, after }: EntryBody,
    { from, to }: { from: AgentFacts; to: AgentFacts },
  ): string | undefined {
    // Removing payees needs no order, unless their terms for everywhere then apply.
    const isRemoval = action === "allowlist.removed" && listIn(after).length === 0;
    if (!isRemoval && loosens(rulesOf(from), rulesOf(to)))
      return `is ${action} without a signed order, and it loosens the rules`;
    this.#agents.set(agentId ?? "", to);
    return undefined;
  }

  #agent(id: string | null): AgentFacts {
    return this.#agents.get(id ?? "") ?? { status: "paused", payees: [] };
  }

  /** An agent keeps its wallet forever. */
  #hasWallet(id: string | null, wallet: string): boolean {
    const agent = this.#agent(id);
    const isSame = (agent.wallet ?? wallet) === wallet;
    this.#agents.set(id ?? "", { ...agent, wallet });
    return isSame;
  }
}

const SIGN_IN = / wants you to sign in with your Ethereum account:$/;
const PASSKEY_SIGN_IN = /^Sign in to Purser at \S+ with a passkey\.\n\nNonce: [A-Za-z0-9]+$/;

function signInFault(
  { actor, proof }: EntryBody,
  { message, signer }: Signed & { kind: "message" },
): string | undefined {
  const [first = "", address = ""] = message.split("\n");
  const isByPasskey = proof?.kind === "message" && isPasskeySignature(proof.signature);
  const isSignIn = isByPasskey
    ? PASSKEY_SIGN_IN.test(message)
    : SIGN_IN.test(first) && isAddress(address, signer);
  return isSignIn && isAddress(actor, signer)
    ? undefined
    : "has a signature that is not of a sign-in";
}

function keyFault(action: string, after: Facts, order: IssueKeyOrder): string | undefined {
  const isConnection = order.label.startsWith(CONNECTION_LABEL);
  const isSame =
    after["label"] === order.label &&
    after["expiresAt"] === TIME.wire(readOptional(order.expiresAt));
  return isSame && isConnection === (action === "connection.granted") ? undefined : OTHER;
}

const isAddress = (left: string, right: string): boolean =>
  left.toLowerCase() === right.toLowerCase();

/** Whether the other object contains all of these facts. */
const holds = (facts: Facts, other: Facts): boolean =>
  Object.entries(facts).every(([name, value]) => other[name] === value);

/**
 * Whether the entry contains these rules, each of them. An entry that was written before a setting existed does not name
 * it: then the setting is not set.
 */
const holdsRules = ({ name, ...rules }: Facts, other: Facts): boolean =>
  other["name"] === name &&
  AGENT_FIELDS.every((field) => {
    const noted = field.name in other || field.since === 1 ? other[field.name] : unsetOf(field);
    return noted === rules[field.name];
  });

const unsetOf = ({ kind }: Field): Wire => kind.wire(kind.unset);

/** A policy in the form of entries. */
function factsOf(order: AgentPolicyOrder): Pick<AgentFacts, "rules" | "payees"> {
  const rules = rulesOfPolicy(order);
  return {
    rules: { name: order.name, ...settingsOnWire(AGENT_FIELDS, rules) },
    payees: rules.payees.map((payee) => ({
      address: payee.address,
      label: payee.label,
      site: payee.site,
      ...settingsOnWire(PAYEE_FIELDS, payee),
    })),
  };
}

function asText(value: unknown): string {
  if (typeof value !== "string") throw new TypeError("a field of an entry is not text");
  return value;
}

const addressOf = ({ address }: Facts) => asText(address).toLowerCase() as `0x${string}`;
const keyOf = (payee: Facts): string =>
  payeeKey({ address: addressOf(payee), site: asText(payee["site"]) });
const textOf = (payee: Facts): string =>
  JSON.stringify([
    addressOf(payee),
    payee["label"],
    payee["site"],
    ...PAYEE_FIELDS.map((field) =>
      field.name in payee || field.since === 1 ? payee[field.name] : unsetOf(field),
    ),
  ]);

/** The payees that differ, before and after. */
interface PayeeChange {
  before: Facts[];
  after: Facts[];
}

function difference(before: readonly Facts[], after: readonly Facts[]): PayeeChange {
  const [old, now] = [before, after].map((list) => new Set(list.map(textOf))) as [
    Set<string>,
    Set<string>,
  ];
  return {
    before: before.filter((payee) => !now.has(textOf(payee))),
    after: after.filter((payee) => !old.has(textOf(payee))),
  };
}

/** The payees in one side of an entry: one of them, those that differ, or, in old entries, the whole list. */
function listIn(side: Facts | null): Facts[] {
  if (side === null) return [];
  if ("address" in side) return [side];
  return (side["payees"] ?? side["allowlist"] ?? []) as Facts[];
}

const isNamed = ({ before, after }: EntryBody): boolean =>
  [before, after].some((side) =>
    ["address", "payees", "allowlist"].some((name) => name in (side ?? {})),
  );

/** Undefined if the entry counts payees without naming them. */
function changeIn(body: EntryBody): PayeeChange | undefined {
  if (!isNamed(body)) return undefined;
  const [before, after] = [listIn(body.before), listIn(body.after)];
  if ("allowlist" in (body.after ?? {})) return { before, after };
  return hasCounts(body, { before, after }) ? { before, after } : undefined;
}

const COUNTS = ["added", "removed", "changed"] as const;

function countsOf({ before, after }: PayeeChange): Record<(typeof COUNTS)[number], number> {
  const known = new Set(before.map(keyOf));
  const changed = after.filter((payee) => known.has(keyOf(payee))).length;
  return { added: after.length - changed, removed: before.length - changed, changed };
}

/** An entry about one payee has no counts; other entries omit counts of zero. */
function hasCounts({ before, after }: EntryBody, change: PayeeChange): boolean {
  if ([before, after].some((side) => "address" in (side ?? {}))) return true;
  const counts = countsOf(change);
  return COUNTS.every((name) => (after?.[name] ?? 0) === counts[name]);
}

/** The entry removed or tightened payees, and names none of them. */
const countsRemovals = ({ action, before, after }: EntryBody): boolean =>
  action !== "allowlist.added" &&
  before === null &&
  after?.["added"] === undefined &&
  after?.["order"] === undefined &&
  [after?.["removed"], after?.["changed"]].some((count) => Number.isSafeInteger(count));

/** Whether the entry contains this change and its signed order; it may count the payees instead of naming them. */
function saysChange(body: EntryBody, change: PayeeChange, digest: string): boolean {
  const { before, after } = body;
  const isSame =
    !isNamed(body) ||
    (isSameList(listIn(before), change.before) && isSameList(listIn(after), change.after));
  return isSame && hasCounts(body, change) && after?.["order"] === digest;
}

/** Whether the entry is the change of the policy in the previous entry. */
function isSignedChange(
  body: EntryBody,
  { payees, formerPayees }: AgentFacts,
  { digest }: Signed,
): boolean {
  const { action, before, after } = body;
  if ("allowlist" in (after ?? {})) return isSameList(listIn(after), payees);
  if (action === "allowlist.replaced") {
    if (formerPayees) return saysChange(body, difference(formerPayees, payees), digest);
    const texts = new Set(payees.map(textOf));
    return after?.["order"] === digest && listIn(after).every((payee) => texts.has(textOf(payee)));
  }
  const [gone, now] = [listIn(before), listIn(after)];
  if (now.length === 0)
    return gone.every((one) => payees.every((payee) => keyOf(payee) !== keyOf(one)));
  return now.every((one) => payees.some((payee) => textOf(payee) === textOf(one)));
}

function isSameList(list: unknown, payees: readonly Facts[]): boolean {
  const texts = (all: readonly Facts[]) => all.map(textOf).toSorted().join("\n");
  return Array.isArray(list) && texts(list as Facts[]) === texts(payees);
}

/** The settings among the facts; those that are missing are not set. */
const settingsOfFacts = (fields: readonly Field[], facts: Facts): object =>
  settingsFromWire(fields, facts, ({ name }, reason) => {
    throw new RangeError(`${name} ${reason}`);
  });

/** The facts as rules, for comparison. */
const rulesOf = ({ status, rules = {}, payees }: AgentFacts): RulesInForce =>
  ({
    ...settingsOfFacts(AGENT_FIELDS, rules),
    status,
    payees: payees.map((payee) => ({
      ...settingsOfFacts(PAYEE_FIELDS, payee),
      address: addressOf(payee),
      label: asText(payee["label"]),
      site: asText(payee["site"]),
    })),
  }) as unknown as RulesInForce;
