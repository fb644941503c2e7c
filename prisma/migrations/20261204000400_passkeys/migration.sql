-- Passkeys of owners. What counts is the newest order that lists them (or the owner's address, the hash of its first one): this
-- table helps to find a passkey again, and knows how often it has signed.

CREATE TABLE passkeys (
  -- WebAuthn's credential id, base64url.
  id TEXT PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]+$' AND length(id) <= 1400),
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 60),
  -- The public key.
  x TEXT NOT NULL CHECK (x ~ '^0x[0-9a-f]{64}$'),
  y TEXT NOT NULL CHECK (y ~ '^0x[0-9a-f]{64}$'),
  -- offered: made by the owner's device, and in no signed list yet.
  status TEXT NOT NULL CHECK (status IN ('offered', 'active', 'removed')),
  -- The authenticator's own count of signatures; most report 0 always.
  sign_count BIGINT NOT NULL DEFAULT 0,
  transports TEXT[] NOT NULL DEFAULT '{}',
  used_at TIMESTAMPTZ(6),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX passkeys_owner_idx ON passkeys (owner_id, created_at DESC, id DESC);
-- A key belongs to one owner.
CREATE UNIQUE INDEX passkeys_key ON passkeys (x, y);

ALTER TABLE owner_orders DROP CONSTRAINT owner_orders_kind_check;
ALTER TABLE owner_orders ADD CONSTRAINT owner_orders_kind_check
  CHECK (kind IN ('AgentPolicy', 'IssueKey', 'ApprovePayment', 'SecondWallet', 'MoveOwner', 'Resume', 'Passkeys', 'PayoutAddress'));
-- The lists of passkeys and the payout addresses of an owner.
CREATE INDEX owner_orders_passkeys_idx ON owner_orders (owner_id, kind, used_at)
  WHERE kind IN ('Passkeys', 'PayoutAddress') AND used_at IS NOT NULL;
