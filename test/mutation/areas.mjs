// Which code has mutants, by area, and which tests may kill them.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../server/local/bootstrap.mjs";

const FUNCTIONS = "prisma/functions";
const sql = (names) =>
  names
    .trim()
    .split(/\s+/)
    .map((name) => `${FUNCTIONS}/purser_${name}.sql`);
const inFolder = (folder, names) =>
  names
    .trim()
    .split(/\s+/)
    .map((name) => `${folder}/${name}.ts`);

/** @type {Record<string, string[]>} */
export const AREAS = {
  "limits in SQL":
    sql(`reserve first_refusal reserve_withdrawal counted_sum sum_reached_at release_times window
    window_facts limits leaves_window_at outstanding permit use_permit restore_permit site_facts count_payment count_change
    write_sums joinable clock_apart valid_before quota_take hold_begin cancel_call cancel_wanted`),
  "stops and pauses in SQL":
    sql(`stop resume usual_day failures pays_at opens_at pause_by_rule agent_status
    assert_not_stopped key_while_stopped`),
  "budgets in SQL": sql(
    "budget_change budget_fits_at budget_limits budget_now budget_others budgets_count budgets_lock budgets_take",
  ),
  "gas in SQL": sql("gas_accepted gas_move gas_refill gas_reserve gas_step gas_take gas_true_up"),
  guardrails: [
    ...inFolder("server/plugins/guardrails", "available decide rules types"),
    ...inFolder("packages/rules/src", "kinds policy rules"),
    "server/core/rules.ts",
  ],
  custody: inFolder("server/plugins/custody", "columns covers envelope seal-changes sign-in vault"),
  "settlement in SQL":
    sql(`settlements_correct settlements_finalize payment_amount payment_corrected payments_settled
    payment_voided submit_payment void_unsigned transaction_final transaction_reopened was_settled lane_acquire lane_persist`),
  settlement: inFolder(
    "server/plugins/settlement",
    "accept batch mempool preflight prove receipts",
  ),
  schemes: [
    ...inFolder("server/schemes", "index scheme allowance/index exact-permit2/index upto/index"),
    ...inFolder("server/schemes/exact-eip3009", "index onchain"),
    ...inFolder("server/schemes/permit2", "approval onchain parts reading traces"),
  ],
  channels: [
    ...inFolder("server/plugins/channels", "check orders states"),
    ...inFolder("server/schemes/batch-settlement", "contract deposit orders reading"),
  ],
  "channels in SQL":
    sql(`channel channel_balance channel_closed channel_corrected voucher_again voucher_ended
    voucher_signed vouchers_decided`),
  "channels of wallets": [
    ...inFolder("server/plugins/channels", "closing refund wallet"),
    "server/schemes/batch-settlement/paying.ts",
    ...inFolder("server/plugins/x402-client", "channel choose"),
  ],
  "channels of paywalls": inFolder(
    "packages/paywall/src",
    "channel-claims channel-facilitator channel-settings channels voucher",
  ),
  idempotency: inFolder("server/plugins/payments", "idempotency lost-responses"),
  passkeys: [
    ...inFolder("packages/rules/src", "assertions passkeys"),
    ...inFolder("server/core", "passkeys payout"),
  ],
  "teams and budgets": [
    ...inFolder("packages/rules/src", "budgets teams"),
    ...inFolder("server/plugins/budgets", "budgets store"),
  ],
  "tasks and stops": [
    "server/plugins/stop/stop.ts",
    ...inFolder("server/plugins/tasks", "store tasks"),
  ],
  teams: [
    ...inFolder("server/plugins/teams", "members store"),
    ...inFolder("server/plugins/orders", "team-signatures team-store"),
  ],
};

/** Tests of the SQL functions, each of a few seconds at most. */
const SQL_TESTS = [
  "test/spending/decision-cases.test.ts",
  "test/spending/budget-cases.test.ts",
  "test/spending/window-boundaries.test.ts",
  "test/spending/window-property.test.ts",
  "test/spending/rules-order.test.ts",
  "test/spending/pausing-rules.test.ts",
  "test/spending/accepted-in-groups.test.ts",
  "test/spending/sums.test.ts",
  "test/spending/withdrawal-cases.test.ts",
  "test/spending/channel-decisions.test.ts",
  "test/spending/voucher-outcomes.test.ts",
  "test/settlement/small-decisions.test.ts",
  "test/settlement/gas-accounts.test.ts",
  "test/settlement/written-outcomes.test.ts",
  "test/settlement/written-transactions.test.ts",
  "test/settlement/gas-cases.test.ts",
  "test/settlement/lane-cases.test.ts",
  "test/settlement/at-the-same-time.test.ts",
];

/** Quick tests with a database for TypeScript that has statements, by area. */
const TESTS_OF_AREA = {
  idempotency: ["test/spending/stored-keys.test.ts"],
  "teams and budgets": ["test/owners/decided-changes.test.ts"],
  "tasks and stops": ["test/spending/task-cases.test.ts", "test/owners/decided-changes.test.ts"],
  teams: ["test/owners/decided-members.test.ts"],
};

/** The pure tests for TypeScript, those with a database for SQL and for statements. */
export const killingTests = (files) => [
  ...(files.every(isSql) ? [] : filesIn("test/unit")),
  ...(files.some(isSql) ? SQL_TESTS : []),
  ...Object.entries(TESTS_OF_AREA).flatMap(([area, tests]) =>
    AREAS[area].some((file) => files.includes(file)) ? tests : [],
  ),
];

const filesIn = (folder) =>
  readdirSync(join(ROOT, folder))
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => `${folder}/${name}`);

export const isSql = (file) => file.endsWith(".sql");
const nameOf = (file) => file.slice(FUNCTIONS.length + 1, -".sql".length);

/**
 * Postgres does not count calls of functions that it inlines: such a function counts as called where a function that
 * names it is called.
 * @param {ReadonlySet<string>} called
 */
export function withInlined(called) {
  const all = new Set(called);
  const texts = readdirSync(join(ROOT, FUNCTIONS))
    .filter(isSql)
    .map((file) => [
      file.slice(0, -".sql".length),
      readFileSync(join(ROOT, FUNCTIONS, file), "utf8"),
    ]);
  const inlined = texts.filter(([, text]) => /LANGUAGE sql/.test(text)).map(([name]) => name);
  for (let size = -1; size < all.size;) {
    size = all.size;
    for (const [name, text] of texts)
      if (all.has(name)) for (const one of inlined) if (text.includes(`${one}(`)) all.add(one);
  }
  return all;
}

export { nameOf as functionOf };
