-- When reconciliation compares a channel with the chain next.
ALTER TABLE channels ADD COLUMN prove_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity';
CREATE INDEX channels_proof_idx ON channels (chain_id, prove_at);
-- What came back to a wallet from its channels.
CREATE INDEX payments_returns_idx ON payments (agent_id, chain_id) INCLUDE (amount, block_number, status)
  WHERE kind = 'incoming' AND counterparty = '0x4020074e9df2ce1dee5a9c1b5c3f541d02a10003';
-- The owner is notified that little is left when the signed ceiling exceeds this. Null: already notified since the last deposit.
ALTER TABLE channels ADD COLUMN low_at NUMERIC(78, 0);
