-- More windows than the day, and windows of one payee: the same sums ahead of time serve them all.

-- The sums are made anew from the ledger, with two things more: how many payments they hold, and one row for
-- each payee who was paid in a stretch beside the one of everybody (''). What a payee got between two times is
-- then a few rows, however many payments others got.
DROP TABLE payment_sums;
CREATE TABLE payment_sums (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  payee TEXT NOT NULL CHECK (payee = '' OR payee ~ '^0x[0-9a-f]{40}$'),
  level SMALLINT NOT NULL CHECK (level IN (1, 2)),
  after_at TIMESTAMPTZ(6) NOT NULL,
  to_at TIMESTAMPTZ(6) NOT NULL,
  amount NUMERIC(78, 0) NOT NULL CHECK (amount >= 0),
  payments BIGINT NOT NULL CHECK (payments >= 0),
  PRIMARY KEY (agent_id, payee, level, after_at),
  CONSTRAINT payment_sums_has_length CHECK (after_at < to_at)
);
-- What retention deletes first.
CREATE INDEX payment_sums_to_at_idx ON payment_sums (to_at);
ALTER TABLE agents DROP COLUMN summed_to_at, DROP COLUMN unsummed;
ALTER TABLE agents
  ADD COLUMN summed_to_at TIMESTAMPTZ(6) NOT NULL DEFAULT '1970-01-01 00:00:00+00',
  ADD COLUMN unsummed INTEGER NOT NULL DEFAULT 0;
DROP INDEX payments_counted_idx;
CREATE INDEX payments_counted_idx ON payments (agent_id, created_at, id) INCLUDE (amount, counterparty) WHERE counted;

-- A window that some limit needs besides the agent's day: what was counted in (after_at, to_at], as of the last
-- decision that looked at it. Both ends move on, under the agent's row lock, past the payments between; so a
-- window nobody needs costs nothing, and one that is needed again catches up.
CREATE TABLE spending_windows (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  payee TEXT NOT NULL CHECK (payee = '' OR payee ~ '^0x[0-9a-f]{40}$'),
  hours INTEGER NOT NULL CHECK (hours > 0),
  after_at TIMESTAMPTZ(6) NOT NULL,
  to_at TIMESTAMPTZ(6) NOT NULL,
  amount NUMERIC(78, 0) NOT NULL CHECK (amount >= 0),
  payments BIGINT NOT NULL CHECK (payments >= 0),
  PRIMARY KEY (agent_id, payee, hours)
)
WITH (fillfactor = 70);
