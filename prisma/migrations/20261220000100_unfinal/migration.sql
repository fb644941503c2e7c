-- Settled and not final, also by our own transactions: a lane follows a transaction only until it is final.
DROP INDEX settlements_unfinal_idx;
CREATE INDEX settlements_unfinal_idx ON settlements (chain_id, block_number) WHERE status = 'settled' AND final_at IS NULL;
