-- The sum that a wallet has promised and that its balance at `p_balance_block` does not include yet. The money of a voucher
-- is in its channel. The index that holds the sum has no status: a payment has settled_at and a block only while it is settled.
-- In plpgsql because that keeps its plan between calls: every decision calls it.
CREATE FUNCTION purser_outstanding(p_agent_id TEXT, p_chain_id BIGINT, p_balance_block BIGINT)
RETURNS NUMERIC LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN COALESCE((SELECT sum(o.amount) FROM payments o
                    WHERE o.agent_id = p_agent_id AND o.chain_id = p_chain_id AND o.outstanding
                      AND o.ceiling IS NULL), 0)
       + COALESCE((SELECT sum(s.amount) FROM payments s
                    WHERE s.agent_id = p_agent_id AND s.chain_id = p_chain_id AND s.block_number > p_balance_block
                      AND s.settled_at IS NOT NULL AND s.kind <> 'incoming'), 0);
END;
$$;
