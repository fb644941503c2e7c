-- Budgets of an owner over several agents. Their windows work like an agent's own: the same functions, with the budget as the
-- subject. So spending_windows and payment_sums hold rows of budgets too, whose agent_id is the budget's id, and whose payee is the
-- wallet that paid.
CREATE TABLE budgets (
  id TEXT PRIMARY KEY,
  owner_id TEXT NOT NULL REFERENCES owners (id),
  name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 60),
  daily_limit NUMERIC(78, 0) CHECK (daily_limit >= 0),
  weekly_limit NUMERIC(78, 0) CHECK (weekly_limit >= 0),
  monthly_limit NUMERIC(78, 0) CHECK (monthly_limit >= 0),
  -- One more with each change, so that an order for an earlier one is refused.
  version INTEGER NOT NULL DEFAULT 1,
  summed_to_at TIMESTAMPTZ(6) NOT NULL DEFAULT '1970-01-01 00:00:00+00',
  unsummed INTEGER NOT NULL DEFAULT 0,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  updated_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  archived_at TIMESTAMPTZ(6),
  CONSTRAINT budgets_have_a_limit CHECK (num_nonnulls(daily_limit, weekly_limit, monthly_limit) > 0)
)
WITH (fillfactor = 70);
CREATE INDEX budgets_owner_idx ON budgets (owner_id, created_at DESC, id DESC);

-- The budgets in which an agent's next payment counts, in the order of their ids. Empty by default, so the build before can insert rows.
ALTER TABLE agents
  ADD COLUMN budget_ids TEXT[] NOT NULL DEFAULT '{}',
  ADD CONSTRAINT agents_few_budgets CHECK (cardinality(budget_ids) <= 4);

-- A payment and the budgets in which it counts since it was reserved.
CREATE TABLE budget_payments (
  agent_id TEXT NOT NULL,
  payment_id TEXT NOT NULL,
  budget_id TEXT NOT NULL,
  -- Of the decision under the budget's lock: no two payments of a budget have the same.
  at TIMESTAMPTZ(6) NOT NULL,
  -- The wallet that paid.
  payer TEXT NOT NULL,
  amount NUMERIC(78, 0) NOT NULL CHECK (amount >= 0),
  counted BOOLEAN NOT NULL,
  PRIMARY KEY (agent_id, payment_id, budget_id)
);
CREATE INDEX budget_payments_counted_idx ON budget_payments (budget_id, at, payment_id) INCLUDE (amount, payer) WHERE counted;
-- What retention deletes first.
CREATE INDEX budget_payments_at_idx ON budget_payments (at);

-- The subject may be a budget.
ALTER TABLE spending_windows DROP CONSTRAINT spending_windows_agent_id_fkey;
ALTER TABLE payment_sums DROP CONSTRAINT payment_sums_agent_id_fkey;

ALTER TABLE owner_orders DROP CONSTRAINT owner_orders_kind_check;
ALTER TABLE owner_orders ADD CONSTRAINT owner_orders_kind_check
  CHECK (kind IN ('AgentPolicy', 'IssueKey', 'ApprovePayment', 'SecondWallet', 'MoveOwner', 'Resume', 'Passkeys', 'PayoutAddress',
                  'AllowPayeeAgain', 'Budget'));
