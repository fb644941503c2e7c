/**
 * The query keys of all API responses, and which of them a change makes stale. Lint forbids query keys
 * outside this file.
 */
import { dropDrafts } from "./drafts.ts";
import { queryClient } from "./query-client.ts";

export const keys = {
  info: ["info"],
  localInfo: ["local-info"],
  catalogue: ["catalogue"],
  facilitatorStats: ["facilitator-stats"],
  facilitatorKinds: ["facilitator-kinds"],
  session: ["session"],
  sessions: ["sessions"],
  agents: (filter: object) => ["agents", filter] as const,
  agent: (agentId: string) => ["agent", agentId] as const,
  /** Without an agent: all agents together. */
  overview: (agentId: string | undefined) => ["overview", agentId ?? "all"] as const,
  ownBalance: (network: string) => ["own-balance", network] as const,
  apiKeys: (agentId: string) => ["keys", agentId] as const,
  connections: (agentId: string) => ["connections", agentId] as const,
  /** A program's request, from the parameters of its URL. */
  consent: (parameters: object) => ["consent", parameters] as const,
  auditChain: ["audit-chain"],
  deniedPayees: ["denied-payees"],
  recovery: ["recovery"],
  passkeys: ["passkeys"],
  payout: ["payout"],
  team: ["team"],
  waiting: ["waiting"],
  waitingOrder: (id: string) => ["waiting", id] as const,
  waitingReading: (id: string) => ["waiting", id, "reading"] as const,
  audit: (agentId: string) => ["audit", agentId] as const,
  /** Every list of an agent's payments, with any filter. */
  allPayments: (agentId: string) => ["payments", agentId] as const,
  payments: (agentId: string, filter: object) => ["payments", agentId, filter] as const,
  spending: (by: string, range: object) => ["spending", by, range] as const,
  foundPayments: (search: object) => ["spending", "payments", search] as const,
  savedFilters: ["saved-filters"],
  payment: (agentId: string, paymentId: string) => ["payment", agentId, paymentId] as const,
  channels: (agentId: string) => ["channels", agentId] as const,
  tasks: (agentId: string) => ["tasks", agentId] as const,
  channelTotal: (agentId: string) => ["channels", agentId, "total"] as const,
  fetches: (agentId: string) => ["fetches", agentId] as const,
  approvals: (which: "open" | "all") => ["approvals", which] as const,
  approval: (approvalId: string) => ["approval", approvalId] as const,
  notifications: (filter: object) => ["notifications", filter] as const,
  unread: ["notifications", "number"],
  pushDevices: ["push"],
  ownEndpoint: ["push", "own"],
  webhooks: ["webhooks"],
  deliveries: (webhookId: string, status: string) => ["deliveries", webhookId, status] as const,
  email: ["email"],
  merchant: (days: string) => ["merchant", days] as const,
  merchantProducts: (days: string) => ["merchant", days, "products"] as const,
  merchantSettlements: (filter: object) => ["merchant-settlements", filter] as const,
  merchantSettlement: (id: string) => ["merchant-settlement", id] as const,
  merchantKeys: ["merchant-keys"],
  merchantFees: ["merchant-fees"],
  merchantFeeEntries: ["merchant-fee-entries"],
  receipt: (id: string) => ["receipt", id] as const,
  operator: (part: string) => ["operator", part] as const,
  listings: (filter: object) => ["listings", filter] as const,
  suggestedListings: ["listings", "suggested"],
  firstSteps: ["first-steps"],
  budgets: ["budgets"],
  budgetAgents: (budgetId: string) => ["budgets", budgetId, "agents"] as const,
  listing: (listingId: string) => ["listing", listingId] as const,
} as const;

/** The first part of a key names the resource; all keys that begin with it become stale together. */
export type Root = KeyOf<(typeof keys)[keyof typeof keys]>[0];
type KeyOf<T> = T extends (...parts: never[]) => infer K ? K : T;

/** Queries with the same response for every user. */
const PUBLIC: readonly unknown[] = [
  "info",
  "local-info",
  "catalogue",
  "facilitator-stats",
  "facilitator-kinds",
  "session",
] satisfies Root[];

export const staleAfter = {
  /** An event of a payment: lists on screen insert it themselves. */
  paymentEvent: [
    "agents",
    "agent",
    "overview",
    "spending",
    "tasks",
    "channels",
    "budgets",
    "notifications",
    "first-steps",
  ],
  payment: [
    "agents",
    "agent",
    "overview",
    "payments",
    "spending",
    "tasks",
    "channels",
    "budgets",
    "own-balance",
    "notifications",
    "first-steps",
  ],
  /** Limits, payees, expiry, or the state of the agent. */
  rules: [
    "agents",
    "agent",
    "overview",
    "channels",
    "keys",
    "connections",
    "notifications",
    "audit",
    "audit-chain",
    "first-steps",
  ],
  /** Everything was stopped or resumed, or the denied payees changed: one event reports both. */
  stop: ["session", "agents", "agent", "overview", "notifications", "audit-chain", "denied-payees"],
  denied: ["denied-payees", "agents", "agent", "notifications", "audit-chain"],
  /** Its limits, and the agents in it. */
  budget: ["budgets", "agents", "agent", "audit-chain"],
  apiKeys: ["keys", "audit", "audit-chain", "first-steps"],
  channels: ["channels", "agent"],
  connections: ["connections", "audit", "audit-chain"],
  approval: ["approvals", "approval", "notifications", "audit", "audit-chain"],
  /** One may say that an order waits for a signature. */
  notification: ["notifications", "waiting"],
  waiting: ["waiting", "notifications"],
  members: ["team", "waiting", "session", "audit-chain"],
  filter: ["saved-filters"],
  listing: ["listings", "listing"],
  webhook: ["webhooks", "deliveries", "notifications", "audit-chain"],
  email: ["email", "audit-chain", "first-steps"],
  push: ["push", "notifications", "audit-chain", "first-steps"],
  operatorAction: ["operator"],
  refund: ["merchant", "merchant-settlements", "merchant-settlement", "own-balance"],
  receipt: ["merchant-settlement"],
  merchantKeys: ["merchant-keys", "merchant", "audit-chain"],
} as const satisfies Record<string, readonly Root[]>;

/** Queries on screen are fetched again now, the others when they are next shown. */
export async function refetch(roots: Iterable<Root>): Promise<void> {
  await Promise.all(
    Array.from(roots, (root) => queryClient.invalidateQueries({ queryKey: [root] })),
  );
}

/** Named by the event, so that a screen need not know which other screens show the same data. */
export const invalidate = {
  afterPayment: () => refetch(staleAfter.payment),
  afterRules: () => refetch(staleAfter.rules),
  afterStop: () => refetch(staleAfter.stop),
  afterDenied: () => refetch(staleAfter.denied),
  afterBudget: () => refetch(staleAfter.budget),
  afterApiKeys: () => refetch(staleAfter.apiKeys),
  afterChannels: () => refetch(staleAfter.channels),
  afterConnections: () => refetch(staleAfter.connections),
  afterApproval: () => refetch(staleAfter.approval),
  afterWaiting: () => refetch(staleAfter.waiting),
  afterMembers: () => refetch(staleAfter.members),
  /** The order was carried out: it may have changed anything. */
  afterAll: () => queryClient.invalidateQueries(),
  afterFilter: () => refetch(staleAfter.filter),
  afterReading: () => refetch(staleAfter.notification),
  afterWebhook: () => refetch(staleAfter.webhook),
  afterPush: () => refetch(staleAfter.push),
  afterEmail: () => refetch(staleAfter.email),
  afterListing: () => refetch(staleAfter.listing),
  afterOperatorAction: () => refetch(staleAfter.operatorAction),
  afterRefund: () => refetch(staleAfter.refund),
  afterReceipt: () => refetch(staleAfter.receipt),
  afterMerchantKeys: () => refetch(staleAfter.merchantKeys),
  /** Its own query would return "not found" now, on a screen that is about to be left. */
  afterListingRemoved: () => refetch(["listings"]),
  afterSessionEnded: () => refetch(["sessions", "audit-chain"]),
  afterPasskeys: () => refetch(["passkeys", "sessions", "audit-chain", "first-steps"]),
  afterPayout: () => refetch(["payout", "audit-chain"]),
  afterRecovery: () => refetch(["recovery", "audit-chain", "first-steps"]),
  /** The agents belong to another owner now. */
  afterMove: () => refetch(["agents", "agent", "overview", "recovery", "audit-chain", "sessions"]),
  firstSteps: () => refetch(["first-steps"]),
  session: () => refetch(["session"]),
  payments: () => refetch(["payments"]),
  /** A new session may read what was refused before. */
  afterSignIn: () =>
    queryClient.invalidateQueries({ predicate: ({ queryKey: [root] }) => root !== "session" }),
  /** No data of one owner may stay in memory for the next. */
  dropPrivate: () => {
    queryClient.removeQueries({ predicate: ({ queryKey: [root] }) => !PUBLIC.includes(root) });
    dropDrafts();
  },
};
