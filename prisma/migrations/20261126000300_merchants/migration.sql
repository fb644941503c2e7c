-- Merchants: keys of their own, refunds of what was settled to them, and why payments to them were refused.

-- A refund is a transfer that the merchant's wallet signed: relayed as strangers' work is, at a stranger's or a merchant's
-- gas. It is nobody's income: no total of what was settled for others counts it, and no retention forgets it.
ALTER TABLE settlements DROP CONSTRAINT settlements_kind_check, DROP CONSTRAINT settlements_agent_kinds;
ALTER TABLE settlements
  ADD CONSTRAINT settlements_kind_check
    CHECK (kind IN ('spend', 'x402', 'withdrawal', 'facilitated', 'allowance', 'refund')),
  ADD CONSTRAINT settlements_agent_kinds CHECK ((kind IN ('facilitated', 'refund')) = (agent_id IS NULL)),
  -- Written with the row from now on, and held to its kind by a later migration.
  ALTER COLUMN class DROP EXPRESSION;
-- What was settled to one payee, newest first.
CREATE INDEX settlements_payee_idx ON settlements (to_address, created_at DESC, id DESC)
  WHERE kind = 'facilitated' OR (kind = 'x402' AND relay);

CREATE TABLE merchant_keys (
  id TEXT PRIMARY KEY,
  owner_id TEXT NOT NULL REFERENCES owners (id),
  key_hash BYTEA NOT NULL UNIQUE CHECK (length(key_hash) = 32),
  -- What a person recognizes it by.
  prefix TEXT NOT NULL,
  last4 TEXT NOT NULL,
  label TEXT NOT NULL DEFAULT '',
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  last_used_at TIMESTAMPTZ(6),
  revoked_at TIMESTAMPTZ(6)
);
CREATE INDEX merchant_keys_owner_id_idx ON merchant_keys (owner_id, created_at DESC, id DESC);
CREATE INDEX merchant_keys_revoked_at_idx ON merchant_keys (revoked_at) WHERE revoked_at IS NOT NULL;

-- What of a settlement was given back, or may still be: its part is taken while the row of its own authorization
-- (from_address, chain_id, asset, nonce in settlements) has not provably ended without a transfer. What became of it
-- stands there alone. number: the first refund of a settlement is 0; the nonce is made of it.
CREATE TABLE refunds (
  id TEXT PRIMARY KEY,
  owner_id TEXT NOT NULL REFERENCES owners (id),
  settlement_id TEXT NOT NULL,
  number INTEGER NOT NULL CHECK (number >= 0),
  from_address TEXT NOT NULL CHECK (from_address ~ '^0x[0-9a-f]{40}$'),
  chain_id BIGINT NOT NULL,
  asset TEXT NOT NULL CHECK (asset ~ '^0x[0-9a-f]{40}$'),
  nonce TEXT NOT NULL CHECK (nonce ~ '^0x[0-9a-f]{64}$'),
  value NUMERIC(78, 0) NOT NULL CHECK (value > 0),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (settlement_id, number),
  UNIQUE (from_address, chain_id, asset, nonce)
);
CREATE INDEX refunds_owner_id_idx ON refunds (owner_id, created_at DESC, id DESC);

-- Payments to a known merchant that were refused before they became a settlement, by the hour.
CREATE TABLE merchant_refusals (
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  hour TIMESTAMPTZ(6) NOT NULL,
  chain_id BIGINT NOT NULL,
  operation TEXT NOT NULL CHECK (operation IN ('verify', 'settle')),
  reason TEXT NOT NULL CHECK (length(reason) <= 80),
  count BIGINT NOT NULL CHECK (count > 0),
  PRIMARY KEY (owner_id, hour, chain_id, operation, reason)
);
CREATE INDEX merchant_refusals_hour_idx ON merchant_refusals (hour);
