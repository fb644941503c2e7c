-- An owner may stop everything. An agent that this pauses, or that a rule pauses, says so in paused_by: the wallet stays sealed as
-- active, because only the column changed. Without paused_by the owner paused it, and the seal says so. All columns may be null,
-- so the build before can insert and change rows; purser_agent_status keeps them consistent for both.
ALTER TABLE owners
  ADD COLUMN stopped_at TIMESTAMPTZ(6),
  -- The wallet that stopped it: the owner's, or the recovery wallet.
  ADD COLUMN stopped_by TEXT,
  ADD CONSTRAINT owners_stopped_by_somebody CHECK ((stopped_at IS NULL) = (stopped_by IS NULL));
ALTER TABLE agents
  ADD COLUMN paused_by TEXT CHECK (length(paused_by) <= 40),
  ADD COLUMN paused_at TIMESTAMPTZ(6),
  -- What the rule compared, for people.
  ADD COLUMN paused_facts JSONB,
  -- What happened before it does not count for rules that pause.
  ADD COLUMN resumed_at TIMESTAMPTZ(6),
  ADD CONSTRAINT agents_paused_by_is_paused CHECK (paused_by IS NULL OR status = 'paused');

ALTER TABLE owner_orders DROP CONSTRAINT owner_orders_kind_check;
ALTER TABLE owner_orders ADD CONSTRAINT owner_orders_kind_check
  CHECK (kind IN ('AgentPolicy', 'IssueKey', 'ApprovePayment', 'SecondWallet', 'MoveOwner', 'Resume'));
ALTER TABLE events DROP CONSTRAINT events_type_check;
ALTER TABLE events ADD CONSTRAINT events_type_check
  CHECK (type IN ('payment', 'agent', 'session', 'alarm', 'notification', 'owner') OR type LIKE 'approval.%');
