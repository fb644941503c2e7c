-- How verify and settle requests ended, per UTC hour, all replicas together. Settlements themselves are
-- rows; a verify leaves none, so it is counted. Counts of a process are added every few seconds: a crash
-- loses seconds of statistics, never money.
CREATE TABLE facilitator_hours (
  hour TIMESTAMPTZ(6) NOT NULL,
  operation TEXT NOT NULL CHECK (operation IN ('verify', 'settle')),
  outcome TEXT NOT NULL CHECK (outcome IN ('ok', 'refused', 'pending', 'error')),
  count BIGINT NOT NULL CHECK (count >= 0),
  PRIMARY KEY (hour, operation, outcome)
);

-- What the facilitator screen reads: the last day's settlements that others asked for.
CREATE INDEX settlements_facilitated_idx ON settlements (created_at DESC)
  WHERE kind = 'facilitated' OR (kind = 'x402' AND relay);
CREATE INDEX relayer_transactions_created_at_idx ON relayer_transactions (created_at);
