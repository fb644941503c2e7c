-- The settlement engine: who may use a relayer key now, which transactions it signed, which
-- authorizations each of them carries, and what gas it spent.

-- A relayer key on one chain, leased by one process at a time on the database's clock. The epoch grows
-- with every change of holder: what an earlier holder still tries to write no longer matches.
CREATE TABLE relayer_lanes (
  chain_id BIGINT NOT NULL,
  address TEXT NOT NULL CHECK (address ~ '^0x[0-9a-f]{40}$'),
  lease_owner TEXT,
  lease_epoch BIGINT NOT NULL DEFAULT 0,
  lease_until TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  next_nonce BIGINT NOT NULL DEFAULT 0 CHECK (next_nonce >= 0),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (chain_id, address)
);

-- One nonce of a lane and the calldata bound to it for good; only its fee may change, attempt by attempt.
-- pending: may still be mined. mined: final on chain. replaced: its nonce was finally used by a
-- transaction that is not ours, so none of its attempts can ever be mined.
CREATE TABLE relayer_transactions (
  chain_id BIGINT NOT NULL,
  lane_address TEXT NOT NULL CHECK (lane_address ~ '^0x[0-9a-f]{40}$'),
  nonce BIGINT NOT NULL CHECK (nonce >= 0),
  status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'mined', 'replaced')),
  to_address TEXT NOT NULL CHECK (to_address ~ '^0x[0-9a-f]{40}$'),
  calldata BYTEA NOT NULL,
  gas_limit BIGINT NOT NULL CHECK (gas_limit > 0),
  -- The part of the gas limit that counts against the daily ceiling, and the day it was counted on.
  metered_gas BIGINT NOT NULL DEFAULT 0 CHECK (metered_gas >= 0),
  metered_day DATE NOT NULL,
  mined_hash TEXT CHECK (mined_hash ~ '^0x[0-9a-f]{64}$'),
  block_number BIGINT,
  block_hash TEXT,
  gas_used BIGINT,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  finalized_at TIMESTAMPTZ(6),
  PRIMARY KEY (chain_id, lane_address, nonce),
  CONSTRAINT relayer_transactions_mined_has_proof CHECK (status <> 'mined' OR (mined_hash IS NOT NULL AND block_number IS NOT NULL))
);
CREATE INDEX relayer_transactions_pending_idx ON relayer_transactions (chain_id, lane_address, nonce)
  WHERE status = 'pending';
CREATE INDEX relayer_transactions_created_at_idx ON relayer_transactions (created_at);

-- Every signed form of a transaction. Stored before it is sent, never deleted.
CREATE TABLE relayer_attempts (
  hash TEXT PRIMARY KEY CHECK (hash ~ '^0x[0-9a-f]{64}$'),
  chain_id BIGINT NOT NULL,
  lane_address TEXT NOT NULL,
  nonce BIGINT NOT NULL,
  attempt INTEGER NOT NULL CHECK (attempt >= 1),
  raw BYTEA NOT NULL,
  max_fee_wei NUMERIC(78, 0) NOT NULL,
  priority_fee_wei NUMERIC(78, 0) NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (chain_id, lane_address, nonce, attempt),
  FOREIGN KEY (chain_id, lane_address, nonce) REFERENCES relayer_transactions (chain_id, lane_address, nonce)
);

-- Which authorizations a transaction carries, in the order of its calls.
CREATE TABLE settlement_transactions (
  chain_id BIGINT NOT NULL,
  lane_address TEXT NOT NULL,
  lane_nonce BIGINT NOT NULL,
  position INTEGER NOT NULL,
  action TEXT NOT NULL CHECK (action IN ('transfer', 'cancel')),
  from_address TEXT NOT NULL,
  asset TEXT NOT NULL,
  nonce TEXT NOT NULL,
  PRIMARY KEY (chain_id, lane_address, lane_nonce, position),
  FOREIGN KEY (chain_id, lane_address, lane_nonce) REFERENCES relayer_transactions (chain_id, lane_address, nonce)
);
CREATE INDEX settlement_transactions_settlement_idx ON settlement_transactions (from_address, chain_id, asset, nonce);

-- Gas of facilitated work per UTC day, all lanes and replicas together. A transaction counts with its
-- limit when it is signed and is corrected to what it used when it is final.
CREATE TABLE relayer_gas_days (
  chain_id BIGINT NOT NULL,
  day DATE NOT NULL,
  gas BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (chain_id, day)
);
