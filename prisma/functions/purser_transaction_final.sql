-- Writes where a transaction of ours stands: 'included' (in a block, which may be taken back), 'mined'
-- (final) or 'replaced' (a block holds another transaction with its nonce). Proven outcomes are written,
-- what it carried without effect goes back to the queue, and the metered gas is corrected. Facts of the
-- chain: no lease is needed to record them, and recording them twice changes nothing. Answers as
-- purser_settlements_finalize does.
CREATE FUNCTION purser_transaction_final(
  p_chain_id BIGINT, p_address TEXT, p_nonce BIGINT, p_status TEXT,
  p_hash TEXT, p_block_number BIGINT, p_block_hash TEXT, p_gas_used BIGINT, p_outcomes JSONB
) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
  was relayer_transactions%ROWTYPE;
  told JSONB;
BEGIN
  SELECT * INTO was FROM relayer_transactions
   WHERE chain_id = p_chain_id AND lane_address = p_address AND nonce = p_nonce FOR UPDATE;
  IF was.status IS NULL OR was.status NOT IN ('pending', 'included') OR was.status = p_status
     OR (was.status = 'included' AND (p_status <> 'mined' OR was.block_hash <> p_block_hash)) THEN
    RETURN '{"finished": 0, "corrected": []}'::jsonb;
  END IF;
  UPDATE relayer_transactions
     SET status = p_status, mined_hash = p_hash, block_number = p_block_number, block_hash = p_block_hash,
         gas_used = p_gas_used, finalized_at = CASE WHEN p_status <> 'included' THEN clock_timestamp() END
   WHERE chain_id = p_chain_id AND lane_address = p_address AND nonce = p_nonce;
  told := purser_settlements_finalize(p_chain_id, p_outcomes);
  -- Rows that a later transaction carries by now are that one's; rows held are proven when this is final.
  UPDATE settlements s
     SET status = 'queued', lane_address = NULL, lane_epoch = NULL, tx_hash = NULL,
         next_attempt_at = '-infinity', updated_at = clock_timestamp()
    FROM settlement_transactions item
   WHERE item.chain_id = p_chain_id AND item.lane_address = p_address AND item.lane_nonce = p_nonce
     AND s.from_address = item.from_address AND s.chain_id = p_chain_id AND s.asset = item.asset
     AND s.nonce = item.nonce AND s.status = 'submitted' AND s.lane_address = p_address
     AND s.tx_hash IN (SELECT a.hash FROM relayer_attempts a
                        WHERE a.chain_id = p_chain_id AND a.lane_address = p_address AND a.nonce = p_nonce)
     AND NOT EXISTS (SELECT 1 FROM jsonb_to_recordset(p_outcomes) AS o ("from" TEXT, asset TEXT, nonce TEXT, status TEXT)
                      WHERE o.status = 'held' AND o."from" = s.from_address AND o.asset = s.asset AND o.nonce = s.nonce);
  IF was.metered_gas > 0 AND was.status = 'pending' THEN
    PERFORM purser_gas_corrected(was, coalesce(p_gas_used, 0), 1);
  END IF;
  RETURN told;
END;
$$;
