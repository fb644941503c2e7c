-- The settlement engine reports outcomes through this and purser_payment_voided, in the transaction that writes the
-- settlements' outcomes, so that ledger and window always agree with them. Many payments in one statement, each found by its key,
-- as in purser_submit_payment.
CREATE FUNCTION purser_payments_settled(
  p_agents TEXT[], p_payments TEXT[], p_tx_hashes TEXT[], p_blocks BIGINT[], p_final_at TIMESTAMPTZ[]
) RETURNS VOID LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
  UPDATE payments p
     SET status = 'settled', tx_hash = d.tx_hash, block_number = d.block_number, final_at = d.final_at,
         settled_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM unnest(p_agents, p_payments, p_tx_hashes, p_blocks, p_final_at) AS d (agent_id, id, tx_hash, block_number, final_at)
   WHERE p.agent_id = d.agent_id AND p.id = d.id AND p.outstanding IS NOT DISTINCT FROM TRUE;
END;
$$;
