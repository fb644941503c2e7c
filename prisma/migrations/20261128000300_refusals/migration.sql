-- An agent's refusals that are kept for themselves are counted by the hour: beyond so many of them, those that follow are
-- counted on one row a rule (purser_reserve).
ALTER TABLE agents
  ADD COLUMN refusals INTEGER NOT NULL DEFAULT 0 CHECK (refusals >= 0),
  ADD COLUMN refusals_hour TIMESTAMPTZ(6) NOT NULL DEFAULT '1970-01-01 00:00:00+00';
