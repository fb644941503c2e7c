-- The books: what the chain says of our wallets and relayers, compared with the rows, block by block.

-- How far a chain has been read and compared, and by whom. The hash of the last block tells a chain that
-- was rolled back or replaced from one that only grew.
ALTER TABLE incoming_cursors RENAME TO ledger_cursors;
ALTER TABLE ledger_cursors RENAME CONSTRAINT incoming_cursors_pkey TO ledger_cursors_pkey;
ALTER TABLE ledger_cursors
  -- When the last block read was made.
  ADD COLUMN last_at TIMESTAMPTZ(6),
  -- Read again below this block, after a rollback: what was told of it may not be so any more.
  ADD COLUMN read_before BIGINT;

-- Nonces of a relayer's key below this are known: each was used by a transaction of ours, or rang.
CREATE TABLE ledger_lanes (
  chain_id BIGINT NOT NULL,
  address TEXT NOT NULL CHECK (address ~ '^0x[0-9a-f]{40}$'),
  next_nonce BIGINT NOT NULL CHECK (next_nonce >= 0),
  PRIMARY KEY (chain_id, address)
);

-- The balance of a wallet after its last transfer that was read. The next transfers must lead from it to the
-- balance then: a list of logs that lacks one is noticed.
CREATE TABLE ledger_balances (
  chain_id BIGINT NOT NULL,
  wallet TEXT NOT NULL CHECK (wallet ~ '^0x[0-9a-f]{40}$'),
  balance NUMERIC(78, 0) NOT NULL CHECK (balance >= 0),
  block_number BIGINT NOT NULL,
  PRIMARY KEY (chain_id, wallet)
);

-- Where ledger and chain did not agree. Healed: they do now, because a row was corrected or written, or
-- because a person looked at it and said so.
CREATE TABLE ledger_differences (
  chain_id BIGINT NOT NULL,
  kind TEXT NOT NULL,
  -- What names it on chain: an authorization, a transfer, a nonce of a relayer.
  key TEXT NOT NULL,
  -- Null where it concerns the relayer or a stranger's payment.
  agent_id TEXT REFERENCES agents (id),
  tx_hash TEXT CHECK (tx_hash ~ '^0x[0-9a-f]{64}$'),
  block_number BIGINT,
  detail JSONB NOT NULL,
  seen_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  healed_at TIMESTAMPTZ(6),
  PRIMARY KEY (chain_id, kind, key)
);
CREATE INDEX ledger_differences_open_idx ON ledger_differences (chain_id, kind) WHERE healed_at IS NULL;
CREATE INDEX ledger_differences_agent_id_seen_at_idx ON ledger_differences (agent_id, seen_at DESC);

-- What is said to be settled in a span of blocks.
CREATE INDEX settlements_settled_block_idx ON settlements (chain_id, block_number) WHERE status = 'settled';
