-- The ledger: every payment an agent made, was refused or received; and every authorization that
-- moves money, whoever signed it.

-- One row per attempt, blocked ones included. Rows are immutable but for status and outcome.
-- reserved: counted, nothing known yet. submitted: signed and handed to a lane or a seller.
-- settled: on chain. voided: provably can never settle. unknown: signed, outcome not known yet.
CREATE TABLE payments (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('spend', 'x402', 'withdrawal', 'incoming')),
  status TEXT NOT NULL CHECK (status IN ('blocked', 'reserved', 'submitted', 'settled', 'voided', 'unknown')),
  chain_id BIGINT NOT NULL,
  asset TEXT NOT NULL CHECK (asset ~ '^0x[0-9a-f]{40}$'),
  counterparty TEXT CHECK (counterparty ~ '^0x[0-9a-f]{40}$'),
  amount NUMERIC(78, 0) NOT NULL CHECK (amount >= 0),
  memo TEXT,
  api_key_id TEXT,
  request_id TEXT,
  -- The decision: code of the refusal and the numbers it was made on.
  denial_code TEXT,
  policy JSONB,
  -- x402: what was asked, what the seller demanded, what came back.
  url TEXT,
  listing_id TEXT,
  requirement JSONB,
  upstream_status INTEGER,
  delivered BOOLEAN,
  -- Outcome.
  failure_code TEXT,
  failure_detail TEXT,
  nonce TEXT CHECK (nonce ~ '^0x[0-9a-f]{64}$'),
  valid_before BIGINT,
  tx_hash TEXT CHECK (tx_hash ~ '^0x[0-9a-f]{64}$'),
  log_index INTEGER,
  block_number BIGINT,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  updated_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  settled_at TIMESTAMPTZ(6),
  PRIMARY KEY (agent_id, id),
  CONSTRAINT payments_blocked_says_why CHECK ((status = 'blocked') = (denial_code IS NOT NULL)),
  CONSTRAINT payments_settled_has_proof CHECK (status <> 'settled' OR (tx_hash IS NOT NULL AND settled_at IS NOT NULL)),
  CONSTRAINT payments_signed_has_nonce CHECK (status NOT IN ('submitted', 'unknown') OR nonce IS NOT NULL),
  CONSTRAINT payments_paid_is_positive CHECK (status = 'blocked' OR amount > 0),
  CONSTRAINT payments_has_counterparty CHECK (status = 'blocked' OR counterparty IS NOT NULL)
);
CREATE INDEX payments_agent_id_created_at_idx ON payments (agent_id, created_at DESC, id DESC);
-- What the rolling window counts, in the order its tail advances.
CREATE INDEX payments_counted_idx ON payments (agent_id, created_at, id) INCLUDE (amount)
  WHERE kind IN ('spend', 'x402') AND status IN ('reserved', 'submitted', 'settled', 'unknown');
-- Known outstanding authorizations of a wallet.
CREATE INDEX payments_outstanding_idx ON payments (agent_id) INCLUDE (amount, kind, chain_id, created_at)
  WHERE status IN ('reserved', 'submitted', 'unknown');
-- What the landing page counts.
CREATE INDEX payments_blocked_idx ON payments (created_at) WHERE status = 'blocked';
CREATE UNIQUE INDEX payments_incoming_key ON payments (agent_id, chain_id, tx_hash, log_index)
  WHERE kind = 'incoming';

-- The settlement engine's queue and memory. The natural key is the authorization itself: unique
-- here and on chain, so a payment happens exactly once through retries, crashes and replicas.
-- For an agent's own payment `id` equals the payment's id.
CREATE TABLE settlements (
  from_address TEXT NOT NULL CHECK (from_address ~ '^0x[0-9a-f]{40}$'),
  chain_id BIGINT NOT NULL,
  asset TEXT NOT NULL CHECK (asset ~ '^0x[0-9a-f]{40}$'),
  nonce TEXT NOT NULL CHECK (nonce ~ '^0x[0-9a-f]{64}$'),
  id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('spend', 'x402', 'withdrawal', 'facilitated')),
  agent_id TEXT,
  to_address TEXT NOT NULL CHECK (to_address ~ '^0x[0-9a-f]{40}$'),
  value NUMERIC(78, 0) NOT NULL CHECK (value >= 0),
  valid_after NUMERIC(78, 0) NOT NULL,
  valid_before NUMERIC(78, 0) NOT NULL,
  signature BYTEA NOT NULL,
  -- False: only watched (an x402 authorization in a seller's hands). Any /settle for it makes it true.
  relay BOOLEAN NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('queued', 'submitted', 'settled', 'failed', 'expired')),
  -- failed and expired: the protocol's reason code and a sentence.
  error_reason TEXT,
  error_message TEXT,
  tx_hash TEXT CHECK (tx_hash ~ '^0x[0-9a-f]{64}$'),
  block_number BIGINT,
  -- Facilitated: who may hear success again (idempotency key or payment identifier, hashed), and
  -- whether success was told at all. Success without such proof is told at most once.
  caller_key_hash BYTEA,
  body_hash BYTEA,
  success_told_at TIMESTAMPTZ(6),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  updated_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  settled_at TIMESTAMPTZ(6),
  PRIMARY KEY (from_address, chain_id, asset, nonce),
  CONSTRAINT settlements_agent_kinds CHECK ((kind = 'facilitated') = (agent_id IS NULL)),
  CONSTRAINT settlements_settled_has_proof CHECK (status <> 'settled' OR (tx_hash IS NOT NULL AND settled_at IS NOT NULL)),
  CONSTRAINT settlements_failure_says_why CHECK (status NOT IN ('failed', 'expired') OR error_reason IS NOT NULL)
);
CREATE INDEX settlements_id_idx ON settlements (id);
-- Non-final rows only: the queue stays as small as the work in it.
CREATE INDEX settlements_open_idx ON settlements (chain_id, status, created_at)
  WHERE status IN ('queued', 'submitted');
CREATE INDEX settlements_recent_idx ON settlements (created_at DESC, id DESC);

-- Idempotency keys live at least 24 hours. Inserted in the transaction that reserves.
CREATE TABLE idempotency_keys (
  -- The agent's or the owner's id.
  subject_id TEXT NOT NULL,
  route TEXT NOT NULL,
  key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
  body_hash BYTEA NOT NULL CHECK (length(body_hash) = 32),
  payment_id TEXT,
  -- Null while the request runs.
  status_code INTEGER,
  response JSONB,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  updated_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  PRIMARY KEY (subject_id, route, key)
);
CREATE INDEX idempotency_keys_created_at_idx ON idempotency_keys (created_at);

-- The engine reports outcomes through these two functions, in the transaction that makes the
-- settlement final, so the ledger and the window can never disagree with it.

CREATE FUNCTION purser_payment_settled(
  p_agent_id TEXT, p_payment_id TEXT, p_tx_hash TEXT, p_block_number BIGINT
) RETURNS VOID LANGUAGE sql AS $$
  UPDATE payments
     SET status = 'settled', tx_hash = p_tx_hash, block_number = p_block_number,
         settled_at = clock_timestamp(), updated_at = clock_timestamp()
   WHERE agent_id = p_agent_id AND id = p_payment_id AND status IN ('reserved', 'submitted', 'unknown');
$$;

-- Voiding gives the budget back: only ever on proof. The agent row is locked first, in the same
-- order as a reservation, so the sum and the tail cannot move in between.
CREATE FUNCTION purser_payment_voided(
  p_agent_id TEXT, p_payment_id TEXT, p_failure_code TEXT, p_failure_detail TEXT
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  agent_row agents%ROWTYPE;
  payment_row payments%ROWTYPE;
BEGIN
  SELECT * INTO agent_row FROM agents WHERE id = p_agent_id FOR UPDATE;
  UPDATE payments
     SET status = 'voided', failure_code = p_failure_code, failure_detail = p_failure_detail,
         updated_at = clock_timestamp()
   WHERE agent_id = p_agent_id AND id = p_payment_id AND status IN ('reserved', 'submitted', 'unknown')
  RETURNING * INTO payment_row;
  IF FOUND AND payment_row.kind IN ('spend', 'x402')
     AND payment_row.created_at > agent_row.window_tail_at THEN
    UPDATE agents SET window_sum = window_sum - payment_row.amount WHERE id = p_agent_id;
  END IF;
END;
$$;
