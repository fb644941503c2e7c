-- What owners signed, and the rules they can sign.

-- NULL: no limit of this kind, no end.
ALTER TABLE agents
  ADD COLUMN weekly_limit NUMERIC(78, 0) CHECK (weekly_limit >= 0),
  ADD COLUMN monthly_limit NUMERIC(78, 0) CHECK (monthly_limit >= 0),
  ADD COLUMN payments_per_hour INTEGER CHECK (payments_per_hour >= 0),
  -- sites: only what lies on the origins of its payees.
  ADD COLUMN fetch_scope TEXT NOT NULL DEFAULT 'any' CHECK (fetch_scope IN ('any', 'sites'));

-- site: an origin; such a payee is paid by x402-fetch there, and nowhere else.
ALTER TABLE allowlist_entries
  ADD COLUMN site TEXT NOT NULL DEFAULT '' CHECK (length(site) <= 300),
  ADD COLUMN daily_limit NUMERIC(78, 0) CHECK (daily_limit >= 0),
  ADD COLUMN per_payment_limit NUMERIC(78, 0) CHECK (per_payment_limit >= 0),
  ADD COLUMN expires_at TIMESTAMPTZ(6);

-- Orders of owners (EIP-712). A signed one is kept for ever. One that is only prepared holds the wallet of an agent that
-- is to be, until its deadline.
CREATE TABLE owner_orders (
  nonce TEXT PRIMARY KEY CHECK (nonce ~ '^0x[0-9a-f]{64}$'),
  kind TEXT NOT NULL CHECK (kind IN ('AgentPolicy', 'IssueKey', 'ApprovePayment')),
  owner_id TEXT NOT NULL REFERENCES owners (id),
  -- Not a reference: while it is prepared there is no agent yet.
  agent_id TEXT NOT NULL,
  -- Of a policy only.
  version INTEGER CHECK (version > 0),
  -- Of an approval only: its request, which is granted once.
  approval_id TEXT UNIQUE,
  chain_id BIGINT NOT NULL,
  document JSONB NOT NULL,
  digest TEXT NOT NULL CHECK (digest ~ '^0x[0-9a-f]{64}$'),
  deadline BIGINT NOT NULL,
  sealed JSONB,
  signature BYTEA,
  used_at TIMESTAMPTZ(6),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT owner_orders_signed_is_used CHECK ((signature IS NULL) = (used_at IS NULL)),
  CONSTRAINT owner_orders_policy_has_version CHECK ((kind = 'AgentPolicy') = (version IS NOT NULL))
);
-- One policy a version, whatever races.
CREATE UNIQUE INDEX owner_orders_version_key ON owner_orders (agent_id, version) WHERE used_at IS NOT NULL;
CREATE INDEX owner_orders_agent_idx ON owner_orders (agent_id, digest);
CREATE INDEX owner_orders_prepared_idx ON owner_orders (owner_id, created_at) WHERE used_at IS NULL;
-- What a wallet's data key is wrapped for, beside its owner; part of the additional data, so that an edited value opens
-- nothing. The defaults are of a wallet whose owner has signed nothing.
ALTER TABLE agent_wallets
  ADD COLUMN policy_digest TEXT NOT NULL DEFAULT '0x0000000000000000000000000000000000000000000000000000000000000000' CHECK (policy_digest ~ '^0x[0-9a-f]{64}$'),
  ADD COLUMN rules_digest TEXT NOT NULL DEFAULT '0x0000000000000000000000000000000000000000000000000000000000000000' CHECK (rules_digest ~ '^0x[0-9a-f]{64}$'),
  ADD COLUMN revision INTEGER NOT NULL DEFAULT 0 CHECK (revision >= 0);

-- The owner hears of an alarm as of everything else.
ALTER TABLE events DROP CONSTRAINT events_type_check;
ALTER TABLE events ADD CONSTRAINT events_type_check CHECK (type IN ('payment', 'agent', 'session', 'alarm'));
