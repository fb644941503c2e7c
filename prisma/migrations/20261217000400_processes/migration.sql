-- The processes that serve this database, for the operators' page. Each writes its row again while it runs; a row that was not
-- seen for an hour is deleted.
CREATE TABLE processes (
  id TEXT PRIMARY KEY,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  -- One of several of the same command.
  worker TEXT,
  version TEXT NOT NULL,
  commit TEXT NOT NULL,
  built_at TEXT,
  started_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  seen_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX processes_seen_at_idx ON processes (seen_at);
