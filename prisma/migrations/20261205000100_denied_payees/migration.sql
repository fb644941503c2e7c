-- What an owner never pays, from any agent. purser_reserve reads it, so it also holds for payments of the build before.
CREATE TABLE denied_payees (
  id TEXT PRIMARY KEY,
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  -- An address in lower case, or a site: an origin as in allowlist_entries.
  entry TEXT NOT NULL CHECK (entry ~ '^0x[0-9a-f]{40}$' OR (entry ~ '^https?://[^/?#@[:space:]]+$' AND length(entry) <= 300)),
  note TEXT NOT NULL DEFAULT '' CHECK (length(note) <= 200),
  -- The wallet that added it: the owner's, or the recovery wallet.
  added_by TEXT NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX denied_payees_entry ON denied_payees (owner_id, entry);
CREATE INDEX denied_payees_owner_idx ON denied_payees (owner_id, created_at DESC, id DESC);

ALTER TABLE owner_orders DROP CONSTRAINT owner_orders_kind_check;
ALTER TABLE owner_orders ADD CONSTRAINT owner_orders_kind_check
  CHECK (kind IN ('AgentPolicy', 'IssueKey', 'ApprovePayment', 'SecondWallet', 'MoveOwner', 'Resume', 'Passkeys', 'PayoutAddress',
                  'AllowPayeeAgain'));
