/**
 * Under which name each answer of the API is kept, and which of them a change makes untrue. Lint
 * allows no name of a query outside this file.
 */
import { queryClient } from "./query-client.ts";

export const keys = {
  info: ["info"],
  localInfo: ["local-info"],
  catalogue: ["catalogue"],
  facilitatorStats: ["facilitator-stats"],
  facilitatorKinds: ["facilitator-kinds"],
  session: ["session"],
  sessions: ["sessions"],
  agents: (which: "live" | "archived") => ["agents", which] as const,
  agent: (agentId: string) => ["agent", agentId] as const,
  /** Without an agent: of all agents together. */
  overview: (agentId: string | undefined) => ["overview", agentId ?? "all"] as const,
  ownBalance: (network: string) => ["own-balance", network] as const,
  apiKeys: (agentId: string) => ["keys", agentId] as const,
  connections: (agentId: string) => ["connections", agentId] as const,
  /** What a program asks for, as its address says it. */
  consent: (parameters: object) => ["consent", parameters] as const,
  auditChain: ["audit-chain"],
  recovery: ["recovery"],
  audit: (agentId: string) => ["audit", agentId] as const,
  /** Every list of an agent's payments, whatever it is filtered by. */
  allPayments: (agentId: string) => ["payments", agentId] as const,
  payments: (agentId: string, filter: object) => ["payments", agentId, filter] as const,
  payment: (agentId: string, paymentId: string) => ["payment", agentId, paymentId] as const,
  fetches: (agentId: string) => ["fetches", agentId] as const,
  approvals: (which: "open" | "all") => ["approvals", which] as const,
  approval: (approvalId: string) => ["approval", approvalId] as const,
  notifications: (type: string) => ["notifications", type] as const,
  webhooks: ["webhooks"],
  deliveries: (webhookId: string, status: string) => ["deliveries", webhookId, status] as const,
  email: ["email"],
  merchant: (days: string) => ["merchant", days] as const,
  merchantSettlements: (filter: object) => ["merchant-settlements", filter] as const,
  merchantSettlement: (id: string) => ["merchant-settlement", id] as const,
  merchantKeys: ["merchant-keys"],
  listings: (filter: object) => ["listings", filter] as const,
  listing: (listingId: string) => ["listing", listingId] as const,
} as const;

/** The first part says of what; all that begins with it goes stale together. */
export type Root = KeyOf<(typeof keys)[keyof typeof keys]>[0];
type KeyOf<T> = T extends (...parts: never[]) => infer K ? K : T;

/** What is the same whoever is signed in. */
const PUBLIC: readonly unknown[] = [
  "info",
  "local-info",
  "catalogue",
  "facilitator-stats",
  "facilitator-kinds",
  "session",
] satisfies Root[];

export const staleAfter = {
  /** Seen from afar: the lists of payments on screen put the event in its place themselves. */
  paymentEvent: ["agents", "agent", "overview"],
  payment: ["agents", "agent", "overview", "payments", "own-balance"],
  /** Of limits, payees or expiry, and of the agent's state. */
  rules: ["agents", "agent", "overview", "keys", "connections", "audit", "audit-chain"],
  apiKeys: ["keys", "audit", "audit-chain"],
  connections: ["connections", "audit", "audit-chain"],
  approval: ["approvals", "approval", "audit", "audit-chain"],
  listing: ["listings", "listing"],
  webhook: ["webhooks", "deliveries", "notifications", "audit-chain"],
  email: ["email", "audit-chain"],
  refund: ["merchant", "merchant-settlements", "merchant-settlement", "own-balance"],
  merchantKeys: ["merchant-keys", "merchant", "audit-chain"],
} as const satisfies Record<string, readonly Root[]>;

/** What is on screen is fetched again now, the rest when it is next shown. */
export async function refetch(roots: Iterable<Root>): Promise<void> {
  await Promise.all(
    Array.from(roots, (root) => queryClient.invalidateQueries({ queryKey: [root] })),
  );
}

/** Named by what happened, so that no screen has to know who else shows it. */
export const invalidate = {
  afterPayment: () => refetch(staleAfter.payment),
  afterRules: () => refetch(staleAfter.rules),
  afterApiKeys: () => refetch(staleAfter.apiKeys),
  afterConnections: () => refetch(staleAfter.connections),
  afterApproval: () => refetch(staleAfter.approval),
  afterWebhook: () => refetch(staleAfter.webhook),
  afterEmail: () => refetch(staleAfter.email),
  afterListing: () => refetch(staleAfter.listing),
  afterRefund: () => refetch(staleAfter.refund),
  afterMerchantKeys: () => refetch(staleAfter.merchantKeys),
  /** Its own answer would be "not found" now, on a screen that is about to be left. */
  afterListingRemoved: () => refetch(["listings"]),
  afterSessionEnded: () => refetch(["sessions", "audit-chain"]),
  afterRecovery: () => refetch(["recovery", "audit-chain"]),
  /** Nothing of it is this owner's any more. */
  afterMove: () => refetch(["agents", "agent", "overview", "recovery", "audit-chain", "sessions"]),
  session: () => refetch(["session"]),
  payments: () => refetch(["payments"]),
  /** A new session may see what was refused before. */
  afterSignIn: () =>
    queryClient.invalidateQueries({ predicate: ({ queryKey: [root] }) => root !== "session" }),
  /** Nothing of one owner stays in memory for the next. */
  dropPrivate: () => {
    queryClient.removeQueries({ predicate: ({ queryKey: [root] }) => !PUBLIC.includes(root) });
  },
};
