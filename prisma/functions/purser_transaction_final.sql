-- Records the state of one of our transactions: 'included' (in a block, which a reorganisation may remove), 'mined' (final),
-- 'given_up' (final, and it only used up its nonce) or 'replaced' (a block holds another transaction with its nonce). Proven
-- outcomes are written. Payments that it carried without effect return to the queue: by themselves where they caused the
-- failure (p_faults: nonces of authorizations), or later where the transaction was given up. Payers that caused failures are
-- recorded, and the gas paid (p_cost) is charged, once. These are facts of the chain: no lease is needed to record them, and
-- recording them twice changes nothing. Returns the same as purser_settlements_finalize, and `included` where the row says that
-- the transaction is in another block: the caller then checks that block first (purser_transaction_reopened).
CREATE FUNCTION purser_transaction_final(
  p_chain_id BIGINT, p_address TEXT, p_nonce BIGINT, p_status TEXT,
  p_hash TEXT, p_block_number BIGINT, p_block_hash TEXT, p_gas_used BIGINT, p_outcomes JSONB,
  p_faults TEXT[] DEFAULT '{}', p_offenders TEXT[] DEFAULT '{}', p_cost NUMERIC DEFAULT 0
) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
  was relayer_transactions%ROWTYPE;
  v_result JSONB;
  carried INTEGER;
  is_given_up CONSTANT BOOLEAN := EXISTS (
    SELECT 1 FROM relayer_attempts a
     WHERE a.hash = p_hash AND a.chain_id = p_chain_id AND a.lane_address = p_address AND a.nonce = p_nonce
       AND a.purpose = 'void');
BEGIN
  SELECT * INTO was FROM relayer_transactions
   WHERE chain_id = p_chain_id AND lane_address = p_address AND nonce = p_nonce FOR UPDATE;
  IF was.status IS NULL OR was.status NOT IN ('pending', 'included')
     OR (was.status = 'included'
         AND (p_status NOT IN ('mined', 'given_up') OR was.block_hash <> p_block_hash)) THEN
    v_result := '{"finished": 0, "corrected": []}';
    IF was.status = 'included' AND was.block_hash <> p_block_hash THEN
      v_result := v_result || jsonb_build_object('included', jsonb_build_object(
        'hash', was.mined_hash, 'blockNumber', was.block_number::text, 'blockHash', was.block_hash));
    END IF;
    RETURN v_result;
  END IF;
  UPDATE relayer_transactions
     SET status = p_status, mined_hash = p_hash, block_number = p_block_number, block_hash = p_block_hash,
         gas_used = p_gas_used, gas_cost = coalesce(was.gas_cost, p_cost), finalized_at = CASE WHEN p_status <> 'included' THEN clock_timestamp() END
   WHERE chain_id = p_chain_id AND lane_address = p_address AND nonce = p_nonce;
  v_result := purser_settlements_finalize(p_chain_id, p_outcomes);
  SELECT count(*) INTO carried FROM settlement_transactions item
   WHERE item.chain_id = p_chain_id AND item.lane_address = p_address AND item.lane_nonce = p_nonce;
  -- Nothing is left where all of its payments have just ended.
  IF (v_result->>'finished')::int < carried THEN
    -- Rows that are in a later transaction by now belong to that one; held rows are proven when this one is final.
    UPDATE settlements s
       SET status = 'queued', lane_address = NULL, lane_epoch = NULL, tx_hash = NULL,
           faults = s.faults + (s.nonce = ANY (p_faults))::int,
           given_up = s.given_up + is_given_up::int,
           -- Given up once: it goes into a smaller batch, since the size may have been the cause. Then it goes by itself, as does
           -- a payment that was in too many failed transactions, whatever the cause.
           solo = s.solo OR s.nonce = ANY (p_faults) OR s.attempts >= 3 OR (is_given_up AND s.given_up >= 1),
           next_attempt_at = CASE WHEN is_given_up
             THEN clock_timestamp() + least(2 ^ s.given_up, 300) * interval '1 second' ELSE '-infinity' END,
           turn = CASE WHEN is_given_up
             THEN greatest(s.turn, clock_timestamp() + least(2 ^ s.given_up, 300) * interval '1 second') ELSE s.turn END,
           updated_at = clock_timestamp()
      FROM settlement_transactions item
     WHERE item.chain_id = p_chain_id AND item.lane_address = p_address AND item.lane_nonce = p_nonce
       AND s.from_address = item.from_address AND s.chain_id = p_chain_id AND s.asset = item.asset
       AND s.nonce = item.nonce AND s.status = 'submitted' AND s.lane_address = p_address
       AND s.tx_hash IN (SELECT a.hash FROM relayer_attempts a
                          WHERE a.chain_id = p_chain_id AND a.lane_address = p_address AND a.nonce = p_nonce)
       AND NOT EXISTS (SELECT 1 FROM jsonb_to_recordset(p_outcomes) AS o ("from" TEXT, asset TEXT, nonce TEXT, status TEXT)
                        WHERE o.status = 'held' AND o."from" = s.from_address AND o.asset = s.asset AND o.nonce = s.nonce);
  END IF;
  IF cardinality(p_offenders) > 0 THEN
    INSERT INTO lane_offenders AS known (chain_id, payer, until)
    SELECT p_chain_id, payer, clock_timestamp() + interval '1 day' FROM unnest(p_offenders) AS payer
    ON CONFLICT (chain_id, payer) DO UPDATE SET count = known.count + 1, until = EXCLUDED.until;
    UPDATE settlements SET solo = TRUE
     WHERE chain_id = p_chain_id AND class = 2 AND from_address = ANY (p_offenders) AND status = 'queued'
       AND lane_address IS NULL AND (relay OR cancel_signature IS NOT NULL) AND NOT solo;
  END IF;
  IF was.gas_cost IS NULL THEN
    PERFORM purser_gas_true_up(p_chain_id, p_address, p_nonce, p_cost, 1);
  END IF;
  RETURN v_result;
END;
$$;
