/**
 * An order of a team that waits for signatures, in plain words. What is shown and what is signed are both made from the order
 * here; the service's own typed data is not used.
 */
import { BUDGET_FIELDS } from "../../../../packages/rules/src/budgets.ts";
import {
  formOfDomain,
  ORDER_KINDS,
  type OrderKind,
  type Orders,
  typedDataOf,
} from "../../../../packages/rules/src/orders.ts";
import { isSameAddress } from "../address.ts";
import { ApiError, api, send } from "../api.ts";
import { formatUsdc } from "../money.ts";
import { currentSession } from "../session.ts";
import { formatDateTime } from "../time.ts";
import type { Agent, Budget, Page, Payout, Team, TypedData, WaitingOrder } from "../wire.ts";
import { diffMembers, termsOfMembers, termsOfTeam } from "./members.ts";
import { OrderMismatch } from "./signing.ts";
import { type Change, diffTerms, SHOW, termsOfAgent, termsOfOrder, timeIn } from "./terms.ts";

export interface WaitingReading {
  /** "Create research-agent" */
  title: string;
  changes: Change[];
}

const isKind = (kind: string): kind is OrderKind =>
  (ORDER_KINDS as readonly string[]).includes(kind);

export const chainIdIn = ({ typedData }: WaitingOrder): number => typedData.domain.chainId;

export function toSignOf({ kind, order, typedData }: WaitingOrder): TypedData {
  const form = formOfDomain(typedData.domain);
  if (!isKind(kind) || !form)
    throw new Error("This order is of a newer release. Reload the page, then try again.");
  return typedDataOf(kind, order as Orders[typeof kind], typedData.domain.chainId, form);
}

type Reader<K extends OrderKind> = (
  order: Orders[K],
  waiting: WaitingOrder,
) => Promise<WaitingReading>;

const agentOf = (id: string): Promise<Agent> =>
  api.get<Agent>(`/api/agents/${encodeURIComponent(id)}`);

const assertWallet = (agent: Agent, wallet: string): void => {
  if (!isSameAddress(agent.walletAddress, wallet))
    throw new OrderMismatch([{ what: "Wallet", before: agent.walletAddress, after: wallet }]);
};

const usdc = (atomicAmount: string): string => `${formatUsdc(BigInt(atomicAmount))} USDC`;

/** Undefined if it does not exist yet: then the order creates it. */
async function knownAgent(id: string): Promise<Agent | undefined> {
  try {
    return await agentOf(id);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
}

const READERS: { [K in OrderKind]?: Reader<K> } = {
  async AgentPolicy(order, { request }) {
    const { agent: id, wallet } = order as unknown as { agent: string; wallet: string };
    const after = termsOfOrder({ ...order });
    const agent = await knownAgent(id);
    if (!agent) return { title: `Create ${after.name}`, changes: diffTerms(null, after) };
    assertWallet(agent, wallet);
    const isResumed = (request.body as { status?: unknown }).status === "active";
    return {
      title: `Change the rules of ${agent.name}`,
      changes: [
        ...(isResumed ? [{ what: agent.name, before: "paused", after: "active" }] : []),
        ...diffTerms(termsOfAgent(agent), after),
      ],
    };
  },
  async IssueKey(order, { request }) {
    const agent = await agentOf(order.agent);
    assertWallet(agent, order.wallet);
    const until = timeIn({ ...order }, "expiresAt");
    return {
      title: `${request.path.endsWith("/rotate") ? "Rotate a key" : "New API key"} of ${agent.name}`,
      changes: [
        { what: "New API key", before: "", after: order.label || "without a label" },
        { what: "For", before: "", after: agent.name },
        { what: "Expires", before: "", after: until === null ? "never" : formatDateTime(until) },
      ],
    };
  },
  async ApprovePayment(order) {
    const agent = await agentOf(order.agent);
    return {
      title: `Allow ${agent.name} one payment`,
      changes: [
        { what: "Agent", before: "", after: agent.name },
        { what: "At most", before: "", after: usdc(order.maxAmount) },
        { what: "To", before: "", after: order.payee },
        ...(order.site === "" ? [] : [{ what: "Only at", before: "", after: order.site }]),
        { what: "How often", before: "", after: "once" },
      ],
    };
  },
  async Withdraw(order, { request }) {
    const [, id = ""] = /^\/api\/agents\/([^/]+)\/withdrawals$/.exec(request.path) ?? [];
    const agent = await agentOf(id);
    assertWallet(agent, order.wallet);
    return {
      title: `Withdraw from ${agent.name}`,
      changes: [
        { what: "Amount", before: "", after: usdc(order.amount) },
        { what: "From", before: "", after: agent.name },
        { what: "To", before: "", after: order.to },
      ],
    };
  },
  SecondWallet: (order) =>
    only(
      "Name a recovery wallet",
      "Recovery wallet",
      /^0x0{40}$/.test(order.second) ? "none" : order.second,
    ),
  async PayoutAddress(order) {
    const { address } = await api.get<Payout>("/api/payout");
    const change = { what: "Payout address", before: address ?? "", after: order.payout };
    return { title: "Name the payout address", changes: [change] };
  },
  Resume: (order) =>
    only(
      "Resume everything",
      "Everything",
      `active again, stopped ${SHOW.time(BigInt(order.stoppedAt))}`,
    ),
  AllowPayeeAgain: (order) => only("Allow a payee again", "No longer denied", order.payee),
  async Budget(order) {
    const { items } = await api.get<Page<Budget>>("/api/budgets", { query: { limit: 100 } });
    const before = items.find(({ id }) => id === order.budgetId);
    const limits = BUDGET_FIELDS.map(({ name, label, kind }) => {
      const read = kind.readWire(before?.[name] ?? null);
      return {
        what: label,
        before: before && read.ok ? kind.text(read.value, SHOW) : "",
        after: kind.text(kind.readSigned(order[name]), SHOW),
      };
    });
    const changes = [
      { what: "Name", before: before?.name ?? "", after: order.name },
      { what: "State", before: before ? "active" : "", after: order.status },
      { what: "Agents taken out", before: "", after: order.agentsOut },
      ...limits,
    ];
    return {
      title: `Change the budget ${order.name}`,
      changes: changes.filter((change) => change.before !== change.after),
    };
  },
  async Members(order, { team }) {
    const isMember = isSameAddress(currentSession()?.address, team.owner);
    const before = isMember ? termsOfTeam(await api.get<Team>("/api/team")) : undefined;
    return {
      title: `Change the members of ${team.name}`,
      changes: diffMembers(before, termsOfMembers(order)),
    };
  },
};

const only = (title: string, what: string, after: string): Promise<WaitingReading> =>
  Promise.resolve({ title, changes: [{ what, before: "", after }] });

export async function readWaiting(waiting: WaitingOrder): Promise<WaitingReading> {
  const { kind, order, team } = waiting;
  const { owner } = order as { owner?: string };
  if (owner !== undefined && !isSameAddress(owner, team.owner))
    throw new OrderMismatch([{ what: "Team", before: team.owner, after: owner }]);
  const reader = isKind(kind) ? (READERS[kind] as Reader<OrderKind> | undefined) : undefined;
  return reader?.(order as Orders[OrderKind], waiting) ?? { title: kind, changes: [] };
}

/** The paths of requests that need an owner's signature. */
const CARRIED_OUT =
  /^(POST|PUT|PATCH|DELETE) \/api\/(agents|approvals|budgets|owner|payout|recovery|team)(\/[\w/-]*)?$/;

/** Sends the stored request, which has all signatures. */
export async function carryOut({ request }: WaitingOrder): Promise<unknown> {
  const { method, path, body } = request;
  if (!CARRIED_OUT.test(`${method} ${path}`))
    throw new Error(`An order of a team does not send ${method} ${path}.`);
  const response = await send(method as "POST" | "PUT" | "PATCH" | "DELETE", path, { body });
  return response.status === 204 ? undefined : response.json();
}
