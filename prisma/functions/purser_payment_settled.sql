-- The settlement engine reports outcomes through this and purser_payment_voided, in the transaction that writes the
-- settlement's outcome, so that ledger and window always agree with it.
CREATE FUNCTION purser_payment_settled(
  p_agent_id TEXT, p_payment_id TEXT, p_tx_hash TEXT, p_block_number BIGINT, p_final_at TIMESTAMPTZ
) RETURNS VOID LANGUAGE sql AS $$
  UPDATE payments
     SET status = 'settled', tx_hash = p_tx_hash, block_number = p_block_number, final_at = p_final_at,
         settled_at = clock_timestamp(), updated_at = clock_timestamp()
   WHERE agent_id = p_agent_id AND id = p_payment_id AND outstanding;
$$;
