-- How much may lie unspent in payment channels, in all and for a payee, and the longest withdraw delay in seconds. The defaults
-- allow no channels, so the build before can insert rows.
ALTER TABLE agents
  ADD COLUMN channel_held NUMERIC(78, 0) NOT NULL DEFAULT 0 CHECK (channel_held >= 0),
  ADD COLUMN channel_delay INTEGER NOT NULL DEFAULT 86400 CHECK (channel_delay BETWEEN 900 AND 2592000);
ALTER TABLE allowlist_entries ADD COLUMN channel_held NUMERIC(78, 0) CHECK (channel_held >= 0);
