-- Owners, their sessions, their agents, and everything that hangs on an agent.
-- Addresses and hashes are stored in lower case and checked, so that equality is identity.

CREATE TABLE owners (
  id TEXT PRIMARY KEY,
  address TEXT NOT NULL UNIQUE CHECK (address ~ '^0x[0-9a-f]{40}$'),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now()
);

-- The token is never stored, only its SHA-256.
CREATE TABLE sessions (
  id TEXT PRIMARY KEY,
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  token_hash BYTEA NOT NULL UNIQUE CHECK (length(token_hash) = 32),
  user_agent TEXT NOT NULL DEFAULT '',
  ip TEXT NOT NULL DEFAULT '',
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  last_seen_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  expires_at TIMESTAMPTZ(6) NOT NULL,
  revoked_at TIMESTAMPTZ(6)
);
CREATE INDEX sessions_owner_id_created_at_idx ON sessions (owner_id, created_at DESC);

-- A sign-in nonce exists until it is used once or expires.
CREATE TABLE auth_nonces (
  nonce TEXT PRIMARY KEY CHECK (length(nonce) >= 16),
  expires_at TIMESTAMPTZ(6) NOT NULL
);
CREATE INDEX auth_nonces_expires_at_idx ON auth_nonces (expires_at);

CREATE TABLE agents (
  id TEXT PRIMARY KEY,
  owner_id TEXT NOT NULL REFERENCES owners (id),
  name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 80),
  network TEXT NOT NULL,
  wallet_address TEXT NOT NULL UNIQUE CHECK (wallet_address ~ '^0x[0-9a-f]{40}$'),
  status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'archived')),
  daily_limit NUMERIC(78, 0) NOT NULL CHECK (daily_limit >= 0),
  per_payment_limit NUMERIC(78, 0) CHECK (per_payment_limit >= 0),
  expires_at TIMESTAMPTZ(6),
  -- The rolling window (docs/decisions/0003): the sum of counted payments newer than the tail. The tail
  -- is advanced, under this row's lock, past payments 24 hours old; each is passed once.
  window_sum NUMERIC(78, 0) NOT NULL DEFAULT 0 CHECK (window_sum >= 0),
  window_tail_at TIMESTAMPTZ(6) NOT NULL DEFAULT '1970-01-01 00:00:00+00',
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  updated_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  archived_at TIMESTAMPTZ(6)
)
-- A decision updates only window_sum and window_tail_at: with room on the page no index is touched.
WITH (fillfactor = 70);
CREATE INDEX agents_owner_id_created_at_idx ON agents (owner_id, created_at DESC, id DESC);

-- The wallet's private key: AES-256-GCM under a data key of its own, which a master key (kid) wraps.
-- The additional data is agent id + address, so a ciphertext moved to another row does not open.
CREATE TABLE agent_wallets (
  agent_id TEXT PRIMARY KEY REFERENCES agents (id),
  address TEXT NOT NULL UNIQUE CHECK (address ~ '^0x[0-9a-f]{40}$'),
  kid TEXT NOT NULL,
  wrapped_data_key BYTEA NOT NULL,
  ciphertext BYTEA NOT NULL,
  updated_at TIMESTAMPTZ(6) NOT NULL DEFAULT now()
);
CREATE INDEX agent_wallets_kid_idx ON agent_wallets (kid);

CREATE TABLE allowlist_entries (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  address TEXT NOT NULL CHECK (address ~ '^0x[0-9a-f]{40}$'),
  label TEXT NOT NULL DEFAULT '' CHECK (length(label) <= 80),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  PRIMARY KEY (agent_id, address)
);

CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  agent_id TEXT NOT NULL REFERENCES agents (id),
  key_hash BYTEA NOT NULL UNIQUE CHECK (length(key_hash) = 32),
  prefix TEXT NOT NULL,
  last4 TEXT NOT NULL,
  label TEXT NOT NULL DEFAULT '' CHECK (length(label) <= 80),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  expires_at TIMESTAMPTZ(6),
  revoked_at TIMESTAMPTZ(6),
  last_used_at TIMESTAMPTZ(6),
  rotated_to_id TEXT REFERENCES api_keys (id)
);
CREATE INDEX api_keys_agent_id_created_at_idx ON api_keys (agent_id, created_at DESC);

-- Every change of rules and keys: who, when, before, after. Append only.
CREATE TABLE audit_log (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  id TEXT NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  before JSONB,
  after JSONB,
  request_id TEXT,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (agent_id, id)
);
CREATE INDEX audit_log_agent_id_created_at_idx ON audit_log (agent_id, created_at DESC, id DESC);
