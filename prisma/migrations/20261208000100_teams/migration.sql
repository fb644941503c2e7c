-- Teams: owners that are several people. Who they are is in signed orders of kind Members; team_members helps to find a person's
-- teams, and says what the person's session may do. It decides nothing that moves money.

ALTER TABLE owner_orders DROP CONSTRAINT owner_orders_kind_check;
ALTER TABLE owner_orders ADD CONSTRAINT owner_orders_kind_check
  CHECK (kind IN ('AgentPolicy', 'IssueKey', 'ApprovePayment', 'SecondWallet', 'MoveOwner', 'Resume', 'Passkeys', 'PayoutAddress', 'AllowPayeeAgain', 'Budget', 'Members'));
CREATE INDEX owner_orders_members_idx ON owner_orders (owner_id, used_at) WHERE kind = 'Members' AND used_at IS NOT NULL;

-- The name in the newest list.
ALTER TABLE owners ADD COLUMN team_name TEXT;

CREATE TABLE team_members (
  team_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  -- The member's own account.
  address TEXT NOT NULL CHECK (address ~ '^0x[0-9a-f]{40}$'),
  chain_id BIGINT NOT NULL,
  name TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('viewer', 'approver', 'admin')),
  PRIMARY KEY (team_id, address)
);
CREATE INDEX team_members_account_idx ON team_members (address, chain_id);

-- Orders of teams that some members have signed, with the request that needs them.
CREATE TABLE waiting_orders (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  -- Who sent it.
  member TEXT NOT NULL,
  kind TEXT NOT NULL,
  nonce TEXT NOT NULL UNIQUE CHECK (nonce ~ '^0x[0-9a-f]{64}$'),
  chain_id BIGINT NOT NULL,
  form TEXT NOT NULL CHECK (form IN ('readable', 'numbers')),
  document JSONB NOT NULL,
  method TEXT NOT NULL,
  path TEXT NOT NULL,
  -- As it was sent; its signature is replaced by those that were collected.
  body JSONB NOT NULL,
  -- The team's signature so far.
  signature TEXT NOT NULL,
  expires_at TIMESTAMPTZ(6) NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX waiting_orders_team_idx ON waiting_orders (team_id, created_at DESC, id DESC);
CREATE INDEX waiting_orders_expiry_idx ON waiting_orders (expires_at);

-- The team for which a member acts with this session. NULL: for the own account.
ALTER TABLE sessions ADD COLUMN team_id TEXT REFERENCES owners (id) ON DELETE CASCADE;
