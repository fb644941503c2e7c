-- What keeps decisions flat and tables small: sums of payments ahead of time, and repeats of one refusal on
-- one row.

-- Sums of an agent's counted payments over stretches of time that follow each other without a gap:
-- (after_at, to_at]. Level 1 sums a fixed number of payments, level 2 as many sums of level 1, so any
-- window is a few of each and a few payments at its ends, however many it holds.
CREATE TABLE payment_sums (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  level SMALLINT NOT NULL CHECK (level IN (1, 2)),
  after_at TIMESTAMPTZ(6) NOT NULL,
  to_at TIMESTAMPTZ(6) NOT NULL,
  amount NUMERIC(78, 0) NOT NULL CHECK (amount >= 0),
  PRIMARY KEY (agent_id, level, after_at),
  CONSTRAINT payment_sums_has_length CHECK (after_at < to_at)
);
-- What retention deletes first.
CREATE INDEX payment_sums_to_at_idx ON payment_sums (to_at);

-- How far the sums of level 1 reach, and about how many payments are newer.
ALTER TABLE agents
  ADD COLUMN summed_to_at TIMESTAMPTZ(6) NOT NULL DEFAULT '1970-01-01 00:00:00+00',
  ADD COLUMN unsummed INTEGER NOT NULL DEFAULT 0;

-- The same refusal again within the hour is counted on its first row, and updated_at says when last.
ALTER TABLE payments
  ADD COLUMN repeats INTEGER NOT NULL DEFAULT 0 CHECK (repeats >= 0),
  ADD COLUMN denial_key UUID;
CREATE UNIQUE INDEX payments_denial_key ON payments (agent_id, denial_key) WHERE denial_key IS NOT NULL;

-- Strangers' settlements that are forgotten by now, for the totals of all time.
CREATE TABLE facilitator_past (
  chain_id BIGINT PRIMARY KEY,
  settled BIGINT NOT NULL CHECK (settled >= 0),
  volume NUMERIC(78, 0) NOT NULL CHECK (volume >= 0)
);

-- Final transactions whose signed bytes are still kept.
CREATE INDEX relayer_transactions_bytes_idx ON relayer_transactions (finalized_at)
  WHERE status <> 'pending' AND calldata <> '';
