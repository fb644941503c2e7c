-- A waiting order that was given up stays until it would have expired: its signatures must not be used any more.
ALTER TABLE waiting_orders ADD COLUMN end_reason TEXT CHECK (end_reason IN ('withdrawn', 'members', 'outdated'));
-- Invitations: new lists of members that name an account.
CREATE INDEX waiting_orders_invitations_idx ON waiting_orders USING gin ((document -> 'members') jsonb_path_ops) WHERE kind = 'Members';
-- Sessions of members for a team, which end when they leave it.
CREATE INDEX sessions_team_idx ON sessions (team_id) WHERE team_id IS NOT NULL;
