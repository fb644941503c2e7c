-- The part of purser_settlements_finalize for rows that have an outcome already; the caller holds their locks. The same
-- outcome, now final, is marked final. An outcome that a new proof contradicts is corrected, and the correction raises an
-- alert. Running it twice changes nothing. Which proof prevails:
-- - a receipt that shows the payment prevails over every failure, however that was proven;
-- - a receipt from another block prevails over the settled row's own (a reorganisation moved the payment);
-- - "open" withdraws what was proven by exactly the transaction it names; the row's new outcome is then proven anew, so a
--   settled row never becomes a failed one directly.
CREATE FUNCTION purser_settlements_correct(p_chain_id BIGINT, p_outcomes JSONB)
RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
  ask RECORD;
  was settlements%ROWTYPE;
  now_is settlements%ROWTYPE;
  live RECORD;
  v_kind TEXT;
  corrected JSONB := '[]'::jsonb;
  -- Open again and in none of our transactions yet: its gas is reserved again.
  due TEXT[] := '{}';
  due_gas NUMERIC[] := '{}';
BEGIN
  FOR ask IN
    SELECT o.* FROM jsonb_to_recordset(p_outcomes) AS o
           ("from" TEXT, asset TEXT, nonce TEXT, status TEXT, proof JSONB, "isFinal" BOOLEAN, "byOther" BOOLEAN,
            amount NUMERIC)
     ORDER BY o."from", o.nonce
  LOOP
    SELECT * INTO was FROM settlements s
     WHERE s.from_address = ask."from" AND s.chain_id = p_chain_id AND s.asset = ask.asset AND s.nonce = ask.nonce
       AND s.status IN ('settled', 'failed', 'expired');
    CONTINUE WHEN NOT FOUND;
    v_kind := CASE
      WHEN ask.status = 'open' AND was.proof->>'kind' = 'receipt' AND was.proof->>'tx' = ask.proof->>'tx'
        THEN was.status || '_to_open'
      WHEN ask.status = 'settled' AND ask.proof->>'kind' = 'receipt' AND was.status <> 'settled'
        THEN was.status || '_to_settled'
      WHEN ask.status = 'settled' AND ask.proof->>'kind' = 'receipt'
           AND (was.tx_hash, was.block_hash) IS DISTINCT FROM (ask.proof->>'tx', ask.proof->>'blockHash')
        THEN 'settled_elsewhere'
    END;
    IF v_kind IS NULL THEN
      IF ask."isFinal" AND was.final_at IS NULL AND was.status = ask.status THEN
        UPDATE settlements s SET final_at = clock_timestamp()
         WHERE s.from_address = was.from_address AND s.chain_id = p_chain_id AND s.asset = was.asset
           AND s.nonce = was.nonce;
        UPDATE payments p SET final_at = clock_timestamp()
         WHERE p.agent_id = was.agent_id AND p.id = was.id AND p.status = 'settled';
      END IF;
      CONTINUE;
    END IF;
    IF ask.status = 'open' THEN
      -- Submitted while one of our transactions may still settle it; otherwise back in the queue.
      SELECT t.lane_address, a.hash INTO live
        FROM settlement_transactions i
        JOIN relayer_transactions t USING (chain_id, lane_address)
        JOIN relayer_attempts a ON a.chain_id = t.chain_id AND a.lane_address = t.lane_address AND a.nonce = t.nonce
       WHERE i.from_address = was.from_address AND i.chain_id = p_chain_id AND i.asset = was.asset
         AND i.nonce = was.nonce AND t.nonce = i.lane_nonce AND t.status = 'pending'
       ORDER BY a.hash = was.tx_hash DESC, t.nonce DESC LIMIT 1;
      UPDATE settlements s
         SET status = CASE WHEN live.hash IS NULL THEN 'queued' ELSE 'submitted' END,
             lane_address = live.lane_address, lane_epoch = NULL, tx_hash = live.hash,
             block_number = NULL, block_hash = NULL, proof = NULL, final_at = NULL, settled_at = NULL,
             by_other = FALSE, error_reason = NULL, error_message = NULL, next_attempt_at = '-infinity',
             -- A charge by another transaction may have another amount now; the amount requested from us stays.
             value = CASE WHEN s.relay OR NOT coalesce(s.terms ? 'maximum', FALSE) THEN s.value
                          ELSE (s.terms->>'maximum')::numeric END,
             look_at = '-infinity', searched_up = NULL, searched_down = NULL,
             corrected_at = clock_timestamp(), updated_at = clock_timestamp()
       WHERE s.from_address = was.from_address AND s.chain_id = p_chain_id AND s.asset = was.asset
         AND s.nonce = was.nonce
      RETURNING * INTO now_is;
      IF now_is.attempts = 0 AND now_is.gas_hold > 0 THEN
        due := due || now_is.gas_accounts;
        due_gas := due_gas || array_fill(now_is.gas_hold, ARRAY[cardinality(now_is.gas_accounts)]);
      END IF;
    ELSE
      UPDATE settlements s
         SET status = 'settled', tx_hash = ask.proof->>'tx', block_number = (ask.proof->>'block')::bigint,
             block_hash = ask.proof->>'blockHash', proof = ask.proof,
             final_at = CASE WHEN ask."isFinal" THEN clock_timestamp() END,
             settled_at = coalesce(s.settled_at, clock_timestamp()), by_other = coalesce(ask."byOther", FALSE),
             error_reason = NULL, error_message = NULL, value = coalesce(ask.amount, s.value),
             corrected_at = clock_timestamp(), updated_at = clock_timestamp()
       WHERE s.from_address = was.from_address AND s.chain_id = p_chain_id AND s.asset = was.asset
         AND s.nonce = was.nonce
      RETURNING * INTO now_is;
    END IF;
    INSERT INTO settlement_corrections (from_address, chain_id, asset, nonce, settlement_id, kind, before, after)
    VALUES (was.from_address, p_chain_id, was.asset, was.nonce, was.id, v_kind,
      jsonb_build_object('status', was.status, 'reason', was.error_reason, 'proof', was.proof, 'finalAt', was.final_at),
      jsonb_build_object('status', now_is.status, 'proof', ask.proof));
    IF was.agent_id IS NOT NULL THEN
      PERFORM purser_payment_corrected(was.agent_id, was.id, v_kind, now_is);
    END IF;
    PERFORM purser_signal_settled(now_is);
    corrected := corrected || jsonb_build_object('id', was.id, 'kind', v_kind);
  END LOOP;
  IF corrected <> '[]' THEN
    PERFORM purser_fees_follow(p_chain_id, p_outcomes);
  END IF;
  IF cardinality(due) > 0 THEN
    PERFORM purser_gas_move(p_chain_id, due, due_gas, array_fill(0::numeric, ARRAY[cardinality(due)]));
  END IF;
  RETURN corrected;
END;
$$;
