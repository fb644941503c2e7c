-- A payment's change from reserved to submitted to unknown changes no index any more (a HOT update), and only the bytes that differ
-- are in the log. So no index names the status, neither as a column nor in its condition, and pages keep room for new versions.
-- The columns in these conditions agree with the status: denial_code is set where it is blocked, settled_at and block_number where
-- it is settled.
ALTER TABLE payments SET (fillfactor = 60);

DROP INDEX payments_blocked_idx;
CREATE INDEX payments_blocked_idx ON payments (created_at) WHERE denial_code IS NOT NULL;

-- The sweep of reservations reads the outstanding payments.
DROP INDEX payments_reserved_idx;

DROP INDEX payments_moved_idx;
CREATE INDEX payments_moved_idx ON payments (agent_id, settled_at, id) WHERE settled_at IS NOT NULL;

DROP INDEX payments_settled_block_idx;
CREATE INDEX payments_settled_block_idx ON payments (agent_id, chain_id, block_number) INCLUDE (amount)
  WHERE settled_at IS NOT NULL AND block_number IS NOT NULL AND kind <> 'incoming';

DROP INDEX payments_deposits_idx;
CREATE INDEX payments_deposits_idx ON payments (agent_id, channel_id) WHERE kind = 'deposit';

DROP INDEX payments_returns_idx;
CREATE INDEX payments_returns_idx ON payments (agent_id, chain_id)
  WHERE kind = 'incoming' AND counterparty = '0x4020074e9df2ce1dee5a9c1b5c3f541d02a10003';

DROP INDEX payments_site_idx;
CREATE INDEX payments_site_idx ON payments (agent_id, site, created_at DESC)
  WHERE site IS NOT NULL AND failure_code IS NULL;

-- Only ever looked up by the whole key: the nonce alone finds the row, and its hash is a fifth of the size.
DROP INDEX settlement_transactions_settlement_idx;
CREATE INDEX settlement_transactions_nonce_idx ON settlement_transactions USING hash (nonce);
