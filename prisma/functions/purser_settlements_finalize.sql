-- Writes proven outcomes: settlement, the agent's payment and its budget, and the word to every waiter,
-- in one transaction. A row that has ended already is corrected where the new proof contradicts its end.
-- Each element: {from, asset, nonce, status, proof, isFinal, byOther, amount, reason, message}. amount: what was
-- charged, where a maximum was signed. status: settled |
-- failed | expired | open (a reorganisation took the end back: proof.tx is no longer in the chain) | held
-- (nothing is told before it is final). Answers {finished, corrected: [{id, kind}]}.
CREATE FUNCTION purser_settlements_finalize(p_chain_id BIGINT, p_outcomes JSONB)
RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
  done settlements%ROWTYPE;
  finished INTEGER := 0;
  -- Ended without a transaction of ours: the gas set aside for it is free again.
  spared TEXT[] := '{}';
  spared_gas NUMERIC[] := '{}';
  corrected JSONB := '[]'::jsonb;
BEGIN
  -- One order of locks for all finalizers.
  PERFORM 1 FROM settlements s
    JOIN jsonb_to_recordset(p_outcomes) AS o ("from" TEXT, asset TEXT, nonce TEXT)
      ON s.from_address = o."from" AND s.chain_id = p_chain_id AND s.asset = o.asset AND s.nonce = o.nonce
   ORDER BY s.agent_id, s.from_address, s.nonce FOR UPDATE OF s;
  FOR done IN
    WITH changed AS (
      UPDATE settlements s
         SET status = o.status, tx_hash = coalesce(o.proof->>'tx', s.tx_hash),
             block_number = CASE WHEN o.proof->>'kind' = 'receipt' THEN (o.proof->>'block')::bigint END,
             block_hash = CASE WHEN o.proof->>'kind' = 'receipt' THEN o.proof->>'blockHash' END,
             proof = o.proof, final_at = CASE WHEN o."isFinal" THEN clock_timestamp() END,
             by_other = coalesce(o."byOther", FALSE), error_reason = o.reason, error_message = o.message,
             settled_at = CASE WHEN o.status = 'settled' THEN clock_timestamp() END,
             value = coalesce(o.amount, s.value),
             updated_at = clock_timestamp()
        FROM jsonb_to_recordset(p_outcomes) AS o
             ("from" TEXT, asset TEXT, nonce TEXT, status TEXT, proof JSONB, "isFinal" BOOLEAN,
              "byOther" BOOLEAN, amount NUMERIC, reason TEXT, message TEXT)
       WHERE s.from_address = o."from" AND s.chain_id = p_chain_id AND s.asset = o.asset
         AND s.nonce = o.nonce AND s.status IN ('queued', 'submitted')
         AND o.status IN ('settled', 'failed', 'expired')
      RETURNING s.*)
    SELECT * FROM changed ORDER BY agent_id, from_address, nonce
  LOOP
    finished := finished + 1;
    IF done.agent_id IS NOT NULL THEN
      IF done.status = 'settled' THEN
        -- Of a maximum what was not charged returns to the budget in the same moment.
        IF done.terms ? 'maximum' THEN
          PERFORM purser_payment_amount(done.agent_id, done.id, done.value);
        END IF;
        PERFORM purser_payment_settled(done.agent_id, done.id, done.tx_hash, done.block_number, done.final_at);
      ELSE
        PERFORM purser_payment_voided(done.agent_id, done.id, done.error_reason, done.error_message);
      END IF;
    END IF;
    IF done.attempts = 0 AND done.gas_hold > 0 THEN
      spared := spared || done.gas_accounts;
      spared_gas := spared_gas || array_fill(-done.gas_hold, ARRAY[cardinality(done.gas_accounts)]);
    END IF;
    PERFORM purser_tell_settled(done);
  END LOOP;
  IF finished < jsonb_array_length(p_outcomes) THEN
    corrected := purser_settlements_correct(p_chain_id, p_outcomes);
  END IF;
  IF cardinality(spared) > 0 THEN
    PERFORM purser_gas_move(p_chain_id, spared, spared_gas, array_fill(0::numeric, ARRAY[cardinality(spared)]));
  END IF;
  RETURN jsonb_build_object('finished', finished, 'corrected', corrected);
END;
$$;
