-- What the payee owes for this settlement, as the configuration said when it was accepted ({account, amount}); or whose fees it
-- pays ({account}). Null: neither.
ALTER TABLE settlements ADD COLUMN fee JSONB;

-- One row for each settlement that is settled and has a fee, and for each that paid fees, under the settlement's own key.
CREATE TABLE fee_entries (
  from_address TEXT NOT NULL,
  chain_id BIGINT NOT NULL,
  asset TEXT NOT NULL,
  nonce TEXT NOT NULL,
  -- The settlement's.
  id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('fee', 'payment')),
  account TEXT NOT NULL,
  amount NUMERIC(78, 0) NOT NULL CHECK (amount > 0),
  -- Of the settlement.
  value NUMERIC(78, 0) NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (from_address, chain_id, asset, nonce)
);
CREATE INDEX fee_entries_account_idx ON fee_entries (account, created_at DESC, id DESC);

-- The sums of the entries of a payee on a network. What it owes is what was charged less what was paid.
CREATE TABLE fee_accounts (
  chain_id BIGINT NOT NULL,
  account TEXT NOT NULL,
  charged NUMERIC(78, 0) NOT NULL,
  paid NUMERIC(78, 0) NOT NULL,
  PRIMARY KEY (chain_id, account)
)
WITH (fillfactor = 70);
