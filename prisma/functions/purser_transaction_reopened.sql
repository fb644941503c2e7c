-- A reorganisation removed the block of an included transaction: it may be mined again, and its settlements and their payments
-- are open again. Only while the transaction is recorded in exactly that block, so that a second or late observer changes
-- nothing. Returns the same as purser_settlements_finalize.
CREATE FUNCTION purser_transaction_reopened(
  p_chain_id BIGINT, p_address TEXT, p_nonce BIGINT, p_block_hash TEXT
) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
  was relayer_transactions%ROWTYPE;
  v_result JSONB;
BEGIN
  SELECT * INTO was FROM relayer_transactions
   WHERE chain_id = p_chain_id AND lane_address = p_address AND nonce = p_nonce AND status = 'included'
     AND block_hash = p_block_hash FOR UPDATE;
  IF NOT FOUND THEN
    RETURN '{"finished": 0, "corrected": []}'::jsonb;
  END IF;
  UPDATE relayer_transactions
     SET status = 'pending', mined_hash = NULL, block_number = NULL, block_hash = NULL, gas_used = NULL,
         gas_cost = NULL
   WHERE chain_id = p_chain_id AND lane_address = p_address AND nonce = p_nonce;
  v_result := purser_settlements_finalize(p_chain_id, (
    SELECT coalesce(jsonb_agg(jsonb_build_object('from', s.from_address, 'asset', s.asset, 'nonce', s.nonce,
             'status', 'open', 'proof', s.proof)), '[]'::jsonb)
      FROM settlement_transactions item
      JOIN settlements s ON s.from_address = item.from_address AND s.chain_id = item.chain_id
       AND s.asset = item.asset AND s.nonce = item.nonce
     WHERE item.chain_id = p_chain_id AND item.lane_address = p_address AND item.lane_nonce = p_nonce
       AND s.proof->>'tx' = was.mined_hash AND s.proof->>'blockHash' = p_block_hash));
  IF was.gas_cost IS NOT NULL THEN
    PERFORM purser_gas_true_up(p_chain_id, p_address, p_nonce, was.gas_cost, -1);
  END IF;
  RETURN v_result;
END;
$$;
