-- Settled and not final: also of our own transactions. A lane that follows its transaction no longer does not follow them.
DROP INDEX settlements_unfinal_idx;
CREATE INDEX settlements_unfinal_idx ON settlements (chain_id, block_number) WHERE status = 'settled' AND final_at IS NULL;
