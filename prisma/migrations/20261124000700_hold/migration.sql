-- Agents of a chain pay nothing while a block is named here and not yet read: this database may lack payments that count.
-- The generation grows with each hold, so that whoever looked before a newer one does not lift it.
ALTER TABLE ledger_cursors ADD COLUMN hold_until_block BIGINT;
ALTER TABLE ledger_cursors ADD COLUMN hold_generation BIGINT NOT NULL DEFAULT 0;
-- Used on the chain below this: known of, and held for, whatever next_nonce says.
ALTER TABLE relayer_lanes ADD COLUMN looked_nonce BIGINT NOT NULL DEFAULT 0;

-- Which share of the weekly or monthly limit the owner was told of last, and when; only of the agent's own windows.
ALTER TABLE spending_windows ADD COLUMN told SMALLINT NOT NULL DEFAULT 0 CHECK (told IN (0, 80, 100));
ALTER TABLE spending_windows ADD COLUMN told_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity';

-- Deleted by its owner: seen and told nothing more, and gone when its deliveries are (some at a time).
ALTER TABLE webhooks DROP CONSTRAINT webhooks_status_check;
ALTER TABLE webhooks ADD CONSTRAINT webhooks_status_check CHECK (status IN ('active', 'paused', 'disabled', 'deleted'));
CREATE INDEX webhooks_deleted_idx ON webhooks (id) WHERE status = 'deleted';
