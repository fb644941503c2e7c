-- When a withdrawal from a channel, which began without its receiver, can be finished.
ALTER TABLE channels ADD COLUMN returns_at TIMESTAMPTZ(6);
