-- A relayer's next nonce jumps: the chain knew transactions that this database does not. From the same transaction on
-- agents of this chain wait for the books, since the jump hides the sign from whoever looks later. Up to which block,
-- who looks says (plugins/books/hold.ts); the greatest number stands for "not known yet". A lane that never sent is new here.
-- Where the books have no row yet, what the lane is about to send says of which asset; their first block is not known either.
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
