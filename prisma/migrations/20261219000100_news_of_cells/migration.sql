-- The transaction that changed the account last: other cells read what changed since the last time.
ALTER TABLE fee_accounts ADD COLUMN tx BIGINT NOT NULL DEFAULT 0;
ALTER TABLE fee_accounts ALTER COLUMN tx SET DEFAULT pg_current_xact_id()::text::bigint;

-- What payees owe in the other cells, as these said last.
CREATE TABLE cell_fee_accounts (
  chain_id BIGINT NOT NULL,
  account TEXT NOT NULL,
  cell TEXT NOT NULL,
  charged NUMERIC(78, 0) NOT NULL,
  paid NUMERIC(78, 0) NOT NULL,
  PRIMARY KEY (chain_id, account, cell)
)
WITH (fillfactor = 70);

-- Outcomes for payees without an account here. Other cells read them in the order of their transactions, and notify their owners.
CREATE TABLE cell_notices (
  tx BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
  seq BIGSERIAL NOT NULL,
  address TEXT NOT NULL,
  chain_id BIGINT NOT NULL,
  type TEXT NOT NULL,
  subject_id TEXT NOT NULL,
  data JSONB NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tx, seq)
);
CREATE INDEX cell_notices_created_idx ON cell_notices (created_at);

-- One row for each other cell.
CREATE TABLE cell_news (
  cell TEXT PRIMARY KEY,
  -- Where this cell goes on reading there. Null: from the beginning.
  fees_after TEXT,
  notices_after TEXT,
  next_read_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  read_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  -- Up to which of our transactions that cell has read our notices.
  their_tx BIGINT NOT NULL DEFAULT -1
)
WITH (fillfactor = 50);
