/**
 * Every table of the database, and what a move of owners to another cell does with it. `test/unit/moved-tables.test.ts`
 * compares it with the schema. Parents come before the tables that refer to them.
 */

export interface MovedTable {
  table: string;
  /** Which rows, with `$owners`, `$agents` and `$wallets` for those that move. */
  rows: string;
  /** Columns that differ in the new cell, so they are not compared. */
  changed?: readonly string[];
  /** The new cell may have a row of the same key, which stays. */
  mayExist?: true;
  /** Deleted in the old cell at the end: it would act on them by itself, or sign with them. */
  ends?: true;
}

const OWNER = "t.owner_id = ANY ($owners)";
const AGENT = "t.agent_id = ANY ($agents)";
const TEAM = "t.team_id = ANY ($owners)";
/** The sums of budgets are kept like those of agents. */
const SUMMED = `(${AGENT} OR t.agent_id IN (SELECT b.id FROM budgets b WHERE b.owner_id = ANY ($owners)))`;

export const MOVED: readonly MovedTable[] = [
  {
    table: "owners",
    rows: "t.id = ANY ($owners)",
    changed: ["moved_to", "moved_url", "moved_at", "arrived_at"],
  },
  // An offered one is in no signed list, and is made again in the new cell.
  { table: "passkeys", rows: `${OWNER} AND t.status <> 'offered'` },
  { table: "team_members", rows: TEAM },
  // Prepared ones end in minutes and contain a wallet that does not exist yet.
  {
    table: "owner_orders",
    rows: `(${OWNER} OR ${AGENT}) AND t.used_at IS NOT NULL`,
  },
  { table: "waiting_orders", rows: TEAM },
  { table: "denied_payees", rows: OWNER },
  { table: "saved_filters", rows: OWNER },
  { table: "owner_quotas", rows: OWNER },
  { table: "audit_heads", rows: OWNER },
  { table: "audit_log", rows: OWNER },
  { table: "merchant_keys", rows: OWNER },
  { table: "budgets", rows: OWNER },
  { table: "agents", rows: "t.id = ANY ($agents)" },
  { table: "agent_wallets", rows: AGENT, changed: ["kid", "wrapped_data_key"], ends: true },
  { table: "allowlist_entries", rows: AGENT },
  { table: "api_keys", rows: AGENT },
  { table: "channels", rows: AGENT },
  { table: "tasks", rows: AGENT },
  { table: "payments", rows: AGENT },
  { table: "budget_payments", rows: AGENT },
  { table: "payment_sums", rows: SUMMED },
  { table: "spending_windows", rows: SUMMED },
  // A payment that a seller posted to the new cell was settled there as a third party's. That row knows its outcome.
  {
    table: "settlements",
    rows: "t.from_address = ANY ($wallets) AND t.agent_id = ANY ($agents)",
    mayExist: true,
  },
  {
    table: "idempotency_keys",
    rows: "(t.subject_id = ANY ($agents) OR t.subject_id = ANY ($owners))",
  },
  { table: "fetches", rows: AGENT },
  { table: "cached_answers", rows: AGENT },
  { table: "paid_sites", rows: AGENT },
  { table: "withdrawal_orders", rows: AGENT },
  { table: "approvals", rows: OWNER },
  { table: "listings", rows: OWNER, ends: true },
  { table: "notifications", rows: OWNER },
  {
    table: "webhooks",
    rows: OWNER,
    changed: ["secret", "previous_secret", "secret_kid"],
    ends: true,
  },
  // With the webhooks.
  { table: "webhook_deliveries", rows: OWNER },
  { table: "email_addresses", rows: OWNER, ends: true },
  { table: "mail_waiting", rows: OWNER, ends: true },
];

/** Not copied, and deleted in the old cell at the end. */
export const ENDED: readonly (MovedTable & { why: string })[] = [
  { table: "sessions", rows: `(${OWNER} OR ${TEAM})`, why: "cookies belong to one cell's pages" },
  {
    table: "oauth_connections",
    rows: "t.key_id IN (SELECT k.id FROM api_keys k WHERE k.agent_id = ANY ($agents))",
    why: "programs connected to the old cell's address, and connect again",
  },
  { table: "oauth_requests", rows: OWNER, why: "they end in minutes" },
  { table: "push_waiting", rows: OWNER, why: "of the devices" },
  {
    table: "push_devices",
    rows: OWNER,
    why: "a browser's subscription belongs to one cell's pages and key",
  },
];

/** Nothing of these is copied, and nothing is deleted in the old cell. */
export const STAYING: Readonly<Record<string, string>> = {
  auth_nonces: "of nobody, for minutes",
  oauth_clients: "of all owners; a program registers again",
  oauth_tokens: "end with their connections",
  audit_notes: "empty outside of a transaction",
  canceled_calls: "of calls that have ended: a move waits for all calls",
  nominations: "of the marketplace",
  discovery_documents: "of the marketplace",
  discovered_urls: "of the marketplace",
  ledger_cursors: "one for each chain; the new cell reads again from where the old one was",
  ledger_lanes: "of the cell's gas accounts",
  ledger_balances: "read from the chain again",
  ledger_differences: "an open one stops a move; closed ones are the old cell's record",
  events: "live, for connected browsers",
  relayer_lanes: "of the cell's gas accounts",
  relayer_transactions: "of the cell's gas accounts",
  relayer_attempts: "of the cell's gas accounts",
  settlement_corrections: "what the old cell corrected; a move waits until payments are final",
  settlement_transactions: "of the cell's gas accounts",
  gas_limits: "of the cell",
  gas_accounts: "budgets of the cell's gas: they are full in the new one",
  fee_entries: "with third parties' settlements, which are in their payers' cells",
  fee_accounts: "with third parties' settlements",
  cell_fee_accounts: "copies of the other cells'",
  cell_notices: "for the owners of other cells",
  cell_news: "of the cell",
  lane_offenders: "of the cell's gas accounts",
  facilitator_hours: "of the cell",
  facilitator_past: "of the cell",
  purser_functions: "of the database",
  _prisma_migrations: "of the database",
  rate_buckets: "full in the new cell",
  paywall_notes: "of the cell's own paid routes",
  refunds: "with the settlements that they pay back, which are in their payers' cells",
  merchant_refusals: "with third parties' payments",
  merchant_product_refusals: "with third parties' payments",
  merchant_receipts: "with third parties' settlements",
  mails: "the old cell sends what it has written",
  mail_tokens: "links in the old cell's mails lead to the old cell",
  operator_actions: "of the operators",
  operator_head: "of the operators",
  service_secrets: "of the cell",
  processes: "of the cell",
  owner_moves: "each cell has its own row of a move",
};
