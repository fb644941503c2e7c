-- Filters of payments that an owner saved under a name.
CREATE TABLE saved_filters (
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  id TEXT NOT NULL,
  name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 60),
  filter JSONB NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (owner_id, id)
);
CREATE UNIQUE INDEX saved_filters_name ON saved_filters (owner_id, name);
