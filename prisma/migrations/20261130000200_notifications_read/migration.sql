-- When the owner read a notification; null: not yet. Those from before this migration count as read: a default that is dropped
-- again sets them without rewriting the table. Builds that do not know the column leave it null.
ALTER TABLE notifications ADD COLUMN read_at TIMESTAMPTZ(6) DEFAULT now();
ALTER TABLE notifications ALTER COLUMN read_at DROP DEFAULT;
CREATE INDEX notifications_unread_idx ON notifications (owner_id, created_at DESC, id DESC) WHERE read_at IS NULL;
