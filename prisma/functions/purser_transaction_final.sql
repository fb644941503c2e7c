-- Ends a transaction: proven outcomes are written, what it carried without effect goes back to the
-- queue, and the metered gas is corrected. Facts of the chain: no lease is needed to record them, and
-- recording them twice changes nothing.
CREATE FUNCTION purser_transaction_final(
  p_chain_id BIGINT, p_address TEXT, p_nonce BIGINT, p_status TEXT,
  p_hash TEXT, p_block_number BIGINT, p_block_hash TEXT, p_gas_used BIGINT, p_outcomes JSONB
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  done relayer_transactions%ROWTYPE;
BEGIN
  UPDATE relayer_transactions
     SET status = p_status, mined_hash = p_hash, block_number = p_block_number, block_hash = p_block_hash,
         gas_used = p_gas_used, finalized_at = clock_timestamp()
   WHERE chain_id = p_chain_id AND lane_address = p_address AND nonce = p_nonce AND status = 'pending'
  RETURNING * INTO done;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  PERFORM purser_settlements_finalize(p_chain_id, p_outcomes);
  UPDATE settlements s
     SET status = 'queued', lane_address = NULL, lane_epoch = NULL, tx_hash = NULL,
         next_attempt_at = '-infinity', updated_at = clock_timestamp()
    FROM settlement_transactions item
   WHERE item.chain_id = p_chain_id AND item.lane_address = p_address AND item.lane_nonce = p_nonce
     AND s.from_address = item.from_address AND s.chain_id = p_chain_id AND s.asset = item.asset
     AND s.nonce = item.nonce AND s.status = 'submitted' AND s.lane_address = p_address;
  IF done.metered_gas > 0 THEN
    -- The metered share of what was used is the metered share of the limit.
    UPDATE relayer_gas_days
       SET gas = gas - done.metered_gas
             + floor(done.metered_gas::numeric * coalesce(p_gas_used, 0) / done.gas_limit)::bigint
     WHERE chain_id = p_chain_id AND day = done.metered_day;
  END IF;
END;
$$;
