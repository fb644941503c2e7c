-- An owner that is moved to another cell (docs/operations/move-an-owner.md). The build before leaves all of this null.
ALTER TABLE owners
  -- The cell to which it goes or went, and the address of that cell's pages. Set from the beginning of the move.
  ADD COLUMN moved_to TEXT,
  ADD COLUMN moved_url TEXT,
  -- When the other cell had it, and this one no longer.
  ADD COLUMN moved_at TIMESTAMPTZ(6),
  -- When it came here from another cell.
  ADD COLUMN arrived_at TIMESTAMPTZ(6),
  ADD CONSTRAINT owners_moved_has_place CHECK ((moved_to IS NULL) = (moved_url IS NULL) AND (moved_at IS NULL OR moved_to IS NOT NULL));
CREATE INDEX owners_moved_at_idx ON owners (moved_at) WHERE moved_at IS NOT NULL;
CREATE INDEX owners_arrived_at_idx ON owners (arrived_at) WHERE arrived_at IS NOT NULL;

-- Moves of owners, in both cells under one id. The row of the new cell decides: it becomes 'copied' in the transaction that
-- copies, or 'canceled' before.
CREATE TABLE owner_moves (
  id TEXT PRIMARY KEY,
  -- All that move together.
  owner_ids TEXT[] NOT NULL,
  from_cell TEXT NOT NULL,
  to_cell TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'began' CHECK (state IN ('began', 'copied', 'canceled', 'ended')),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  updated_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp()
);
