-- What an owner signs is kept for ever, so a day has room for so much of it (purser_quota_take).
CREATE TABLE owner_quotas (
  owner_id TEXT PRIMARY KEY REFERENCES owners (id),
  -- GCRA: when all of the day's room is free again. Before now means that it is.
  full_at TIMESTAMPTZ(6) NOT NULL
) WITH (fillfactor = 60);
