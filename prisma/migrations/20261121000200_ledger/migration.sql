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
  -- Two words of this service, defined here and nowhere else. counted: weighs on the rolling window
  -- (while it is young enough). outstanding: promised by the wallet, and not known to have ended.
  counted BOOLEAN NOT NULL GENERATED ALWAYS AS
    (kind IN ('spend', 'x402') AND status IN ('reserved', 'submitted', 'unknown', 'settled')) STORED,
  outstanding BOOLEAN NOT NULL GENERATED ALWAYS AS (status IN ('reserved', 'submitted', 'unknown')) STORED,
  PRIMARY KEY (agent_id, id),
  CONSTRAINT payments_blocked_says_why CHECK ((status = 'blocked') = (denial_code IS NOT NULL)),
  CONSTRAINT payments_settled_has_proof CHECK (status <> 'settled' OR (tx_hash IS NOT NULL AND settled_at IS NOT NULL)),
  CONSTRAINT payments_signed_has_nonce CHECK (status NOT IN ('submitted', 'unknown') OR nonce IS NOT NULL),
  CONSTRAINT payments_paid_is_positive CHECK (status = 'blocked' OR amount > 0),
  CONSTRAINT payments_has_counterparty CHECK (status = 'blocked' OR counterparty IS NOT NULL)
);
CREATE INDEX payments_agent_id_created_at_idx ON payments (agent_id, created_at DESC, id DESC);
-- What the rolling window counts, in the order its tail advances.
CREATE INDEX payments_counted_idx ON payments (agent_id, created_at, id) INCLUDE (amount) WHERE counted;
-- Known outstanding authorizations of a wallet.
CREATE INDEX payments_outstanding_idx ON payments (agent_id) INCLUDE (amount, counted, chain_id, created_at) WHERE outstanding;
-- What the landing page counts.
CREATE INDEX payments_blocked_idx ON payments (created_at) WHERE status = 'blocked';
-- Payments settled after the block a balance was read at are not in that balance yet.
CREATE INDEX payments_settled_block_idx ON payments (agent_id, chain_id, block_number) INCLUDE (amount)
  WHERE status = 'settled' AND kind <> 'incoming';
-- Reservations whose process may have died before it signed.
CREATE INDEX payments_reserved_idx ON payments (created_at) WHERE status = 'reserved';
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
  -- The transfer was made by a transaction that is not ours.
  by_other BOOLEAN NOT NULL DEFAULT FALSE,
  -- Claimed by this lane under this lease; a claim of a lapsed lease is void.
  lane_address TEXT CHECK (lane_address ~ '^0x[0-9a-f]{40}$'),
  lane_epoch BIGINT,
  -- How many transactions have carried it; a row that failed in a batch travels alone next time.
  attempts INTEGER NOT NULL DEFAULT 0,
  next_attempt_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  -- An agent's own authorization that is to be canceled on chain instead of relayed.
  cancel_signature BYTEA,
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
-- What a lane claims, oldest first.
CREATE INDEX settlements_claimable_idx ON settlements (chain_id, created_at)
  WHERE status = 'queued' AND lane_address IS NULL AND (relay OR cancel_signature IS NOT NULL);
-- What may expire next.
CREATE INDEX settlements_expiring_idx ON settlements (chain_id, valid_before)
  WHERE status IN ('queued', 'submitted');
-- What the facilitator screen reads: the last day's settlements that others asked for.
CREATE INDEX settlements_facilitated_idx ON settlements (created_at DESC)
  WHERE kind = 'facilitated' OR (kind = 'x402' AND relay);

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
CREATE INDEX idempotency_keys_payment_id_idx ON idempotency_keys (payment_id) WHERE status_code IS NULL;

-- Owners' signed orders, each executed at most once. The nonce is also the authorization's.
CREATE TABLE withdrawal_orders (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  nonce TEXT NOT NULL CHECK (nonce ~ '^0x[0-9a-f]{64}$'),
  payment_id TEXT NOT NULL,
  to_address TEXT NOT NULL CHECK (to_address ~ '^0x[0-9a-f]{40}$'),
  amount NUMERIC(78, 0) NOT NULL CHECK (amount > 0),
  deadline BIGINT NOT NULL,
  signature BYTEA NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (agent_id, nonce)
);

-- How far incoming transfers of a token have been read, and by whom. The hash tells a chain that
-- was rolled back or replaced from one that only grew.
CREATE TABLE incoming_cursors (
  chain_id BIGINT NOT NULL,
  asset TEXT NOT NULL CHECK (asset ~ '^0x[0-9a-f]{40}$'),
  next_block BIGINT NOT NULL,
  last_hash TEXT,
  lease_owner TEXT,
  lease_until TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  updated_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  PRIMARY KEY (chain_id, asset)
);

-- Server-sent events. A stream reads in the order (tx, seq) and only below the oldest running
-- transaction, so a row committed late is never skipped, whatever replica serves the stream.
CREATE TABLE events (
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  tx BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
  seq BIGSERIAL NOT NULL,
  type TEXT NOT NULL CHECK (type IN ('payment', 'agent', 'session')),
  agent_id TEXT,
  subject_id TEXT NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  PRIMARY KEY (owner_id, tx, seq)
);
CREATE INDEX events_created_at_idx ON events (created_at);
