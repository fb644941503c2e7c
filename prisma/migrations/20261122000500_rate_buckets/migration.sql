-- How full the shared request limits are (server/core/rate-limits.ts), for all replicas together. Not logged: a crash
-- of the database gives every caller a full bucket, and no write waits for the disk.
CREATE UNLOGGED TABLE rate_buckets (
  -- The limit's name and the caller: `spend:agent:agt_...`.
  key TEXT PRIMARY KEY CHECK (length(key) <= 200),
  -- GCRA: when the bucket is full again. Before now means full.
  full_at TIMESTAMPTZ(6) NOT NULL,
  -- The hour after which the row says nothing any more. Whole hours: an update within the hour changes no index.
  kept_until TIMESTAMPTZ(6) NOT NULL
) WITH (fillfactor = 60);
CREATE INDEX rate_buckets_kept_until_idx ON rate_buckets (kept_until);
