-- What a rule denied and the owner may allow once.

-- open: the owner is asked. granted: the owner signed, and it is not paid yet. used: set aside for its payment. A call is
-- one request of the agent: its body's hash, and the key it must come with.
CREATE TABLE approvals (
  id TEXT PRIMARY KEY CHECK (id ~ '^apr_[0-9a-z]{26}$'),
  owner_id TEXT NOT NULL REFERENCES owners (id),
  agent_id TEXT NOT NULL REFERENCES agents (id),
  state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'granted', 'declined', 'expired', 'used')),
  call BYTEA NOT NULL,
  key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
  kind TEXT NOT NULL CHECK (kind IN ('spend', 'x402')),
  chain_id BIGINT NOT NULL,
  asset TEXT NOT NULL CHECK (asset ~ '^0x[0-9a-f]{40}$'),
  payee TEXT NOT NULL CHECK (payee ~ '^0x[0-9a-f]{40}$'),
  amount NUMERIC(78, 0) NOT NULL CHECK (amount > 0),
  -- The origin that is paid by x402-fetch; '' for a spend.
  site TEXT NOT NULL DEFAULT '' CHECK (length(site) <= 300),
  url TEXT,
  listing_id TEXT,
  memo TEXT,
  -- The agent's own words.
  reason TEXT CHECK (length(reason) <= 280),
  denial_code TEXT NOT NULL,
  denial JSONB NOT NULL,
  denied_payment_id TEXT,
  -- Of the signed order: its digest is the nonce of the one authorization it allows, on chain too.
  permit_nonce TEXT CHECK (permit_nonce ~ '^0x[0-9a-f]{64}$'),
  permit_until BIGINT,
  payment_id TEXT,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  expires_at TIMESTAMPTZ(6) NOT NULL,
  decided_at TIMESTAMPTZ(6),
  CONSTRAINT approvals_permit_is_whole CHECK ((permit_nonce IS NULL) = (permit_until IS NULL)),
  CONSTRAINT approvals_granted_has_permit CHECK (state NOT IN ('granted', 'used') OR permit_nonce IS NOT NULL),
  CONSTRAINT approvals_used_has_payment CHECK ((state = 'used') = (payment_id IS NOT NULL))
);
-- One live request for a call, whatever races.
CREATE UNIQUE INDEX approvals_live_key ON approvals (agent_id, call) WHERE state IN ('open', 'granted');
CREATE INDEX approvals_agent_idx ON approvals (agent_id, created_at DESC);
CREATE INDEX approvals_owner_idx ON approvals (owner_id, created_at DESC, id DESC);
CREATE INDEX approvals_owner_live_idx ON approvals (owner_id, created_at DESC, id DESC) WHERE state IN ('open', 'granted');
CREATE INDEX approvals_expires_at_idx ON approvals (expires_at) WHERE state IN ('open', 'granted');
CREATE INDEX approvals_payment_idx ON approvals (payment_id) WHERE payment_id IS NOT NULL;
-- What retention deletes first.
CREATE INDEX approvals_created_at_idx ON approvals (created_at);

ALTER TABLE events DROP CONSTRAINT events_type_check;
ALTER TABLE events ADD CONSTRAINT events_type_check
  CHECK (type IN ('payment', 'agent', 'session', 'alarm') OR type LIKE 'approval.%');
