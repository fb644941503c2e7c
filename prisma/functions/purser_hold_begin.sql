-- A relayer's next nonce jumped: the chain has transactions that this database does not know, so the database is older than the
-- chain. From the same transaction on, agents of this chain wait for reconciliation, since after the jump nothing shows this
-- any more. Reconciliation determines up to which block (server/plugins/reconciliation/hold.ts); the greatest number means "not
-- known yet". It does not apply to a lane that never sent. Where reconciliation has no row yet, the queued work of the lane
-- names the asset, and its first block is not known either.
CREATE FUNCTION purser_hold_begin() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO ledger_cursors (chain_id, asset, next_block)
  SELECT DISTINCT s.chain_id, s.asset, 9223372036854775807 FROM settlements s
   WHERE s.chain_id = NEW.chain_id AND s.status = 'queued' AND s.lane_address = NEW.address
  ON CONFLICT (chain_id, asset) DO NOTHING;
  UPDATE ledger_cursors SET hold_until_block = 9223372036854775807, hold_generation = hold_generation + 1
   WHERE chain_id = NEW.chain_id;
  RETURN NULL;
END;
$$;
CREATE TRIGGER lanes_hold AFTER UPDATE OF next_nonce ON relayer_lanes FOR EACH ROW
  WHEN (OLD.next_nonce > 0 AND NEW.next_nonce > greatest(OLD.next_nonce, OLD.looked_nonce) + 1)
  EXECUTE FUNCTION purser_hold_begin();
