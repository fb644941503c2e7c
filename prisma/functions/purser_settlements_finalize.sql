-- Writes proven outcomes: the settlement, the agent's payment and its budget, and the NOTIFY to every waiting process, in one
-- transaction. A row that has an outcome already is corrected where the new proof contradicts it.
-- Each element: {from, asset, nonce, status, proof, isFinal, byOther, amount, reason, message}. amount: the amount charged,
-- where a maximum was signed. status: settled | failed | expired | open (a reorganisation removed the outcome: proof.tx is no
-- longer in the chain) | held (nothing is reported before it is final). Returns {finished, corrected: [{id, kind}]}.
CREATE FUNCTION purser_settlements_finalize(p_chain_id BIGINT, p_outcomes JSONB)
RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
  done settlements%ROWTYPE;
  -- Rows that need more than a NOTIFY: an agent's payment, or reserved gas that was not used.
  more settlements[];
  -- The agents' payments among them that are settled.
  settled settlements[] := '{}';
  finished INTEGER;
  has_fees BOOLEAN;
  marked INTEGER := 0;
  -- Ended without a transaction of ours: its reserved gas is released.
  spared TEXT[] := '{}';
  spared_gas NUMERIC[] := '{}';
  corrected JSONB := '[]'::jsonb;
  -- Payments whose amount counts less, or again.
  counts RECORD;
BEGIN
  -- All callers lock in the same order. Rows are found by their key: LIMIT keeps the planner from starting at the open
  -- rows or at all rows of the chain, of which it expects few.
  SELECT array_agg(locked.agent_id) AS agents, array_agg(locked.id) AS payments INTO counts
     FROM (SELECT * FROM jsonb_to_recordset(p_outcomes) AS o ("from" TEXT, asset TEXT, nonce TEXT, status TEXT)
            ORDER BY o."from", o.nonce) AS o
    CROSS JOIN LATERAL (
      SELECT s.agent_id, s.id, s.status, s.terms FROM settlements s
       WHERE s.from_address = o."from" AND s.chain_id = p_chain_id AND s.asset = o.asset AND s.nonce = o.nonce
       LIMIT 1 FOR UPDATE OF s) AS locked
    WHERE locked.agent_id IS NOT NULL
      AND (o.status <> 'settled' OR locked.status NOT IN ('queued', 'submitted') OR locked.terms ? 'maximum');
  PERFORM purser_budgets_lock(counts.agents, counts.payments);
  WITH here AS MATERIALIZED (
    SELECT one.ctid AS place, one.status AS stood, o.*
      FROM jsonb_to_recordset(p_outcomes) AS o
           ("from" TEXT, asset TEXT, nonce TEXT, status TEXT, proof JSONB, "isFinal" BOOLEAN,
            "byOther" BOOLEAN, amount NUMERIC, reason TEXT, message TEXT)
      CROSS JOIN LATERAL (
        SELECT s.ctid, s.status FROM settlements s
         WHERE s.from_address = o."from" AND s.chain_id = p_chain_id AND s.asset = o.asset AND s.nonce = o.nonce
         LIMIT 1) AS one),
  changed AS (
    UPDATE settlements s
       SET status = o.status, tx_hash = coalesce(o.proof->>'tx', s.tx_hash),
           block_number = CASE WHEN o.proof->>'kind' = 'receipt' THEN (o.proof->>'block')::bigint END,
           block_hash = CASE WHEN o.proof->>'kind' = 'receipt' THEN o.proof->>'blockHash' END,
           proof = o.proof, final_at = CASE WHEN o."isFinal" THEN clock_timestamp() END,
           by_other = coalesce(o."byOther", FALSE), error_reason = o.reason, error_message = o.message,
           settled_at = CASE WHEN o.status = 'settled' THEN clock_timestamp() END,
           value = coalesce(o.amount, s.value),
           updated_at = clock_timestamp()
      FROM here AS o
     WHERE s.ctid = o.place AND s.chain_id = p_chain_id AND o.stood IN ('queued', 'submitted')
       AND o.status IN ('settled', 'failed', 'expired')
    RETURNING CASE WHEN s.agent_id IS NOT NULL OR (s.attempts = 0 AND s.gas_hold > 0) THEN s END AS more,
      s.id, s.agent_id, s.from_address, s.nonce, s.status, s.tx_hash, s.block_number, s.settled_at,
      s.by_other, s.error_reason, s.error_message, s.value, s.fee IS NOT NULL AS has_fee),
  -- Sixteen settled rows per NOTIFY, since its payload holds 8,000 bytes; a failed row may have a long message.
  said AS (
    SELECT pg_notify('purser_settled', jsonb_agg(purser_settled_message(
             w.id, w.status, w.tx_hash, w.block_number, w.settled_at, w.by_other, w.error_reason, w.error_message, w.value))::text)
      FROM (SELECT *, row_number() OVER (PARTITION BY status) / CASE status WHEN 'settled' THEN 16 ELSE 1 END AS part
              FROM changed) AS w
     GROUP BY w.status, w.part)
  SELECT count(*), array_agg(c.more ORDER BY c.agent_id, c.from_address, c.nonce) FILTER (WHERE c.more IS DISTINCT FROM NULL),
         coalesce(bool_or(c.has_fee), FALSE)
    INTO finished, more, has_fees
    -- Called for its NOTIFY.
    FROM changed c WHERE (SELECT count(*) FROM said) >= 0;
  FOREACH done IN ARRAY coalesce(more, '{}') LOOP
    IF done.agent_id IS NOT NULL THEN
      IF done.status = 'settled' THEN
        -- The part of a maximum that was not charged returns to the budget at once.
        IF done.terms ? 'maximum' THEN
          PERFORM purser_payment_amount(done.agent_id, done.id, done.value);
        END IF;
        settled := settled || done;
      ELSE
        PERFORM purser_payment_voided(done.agent_id, done.id, done.error_reason, done.error_message);
      END IF;
    END IF;
    IF done.attempts = 0 AND done.gas_hold > 0 THEN
      spared := spared || done.gas_accounts;
      spared_gas := spared_gas || array_fill(-done.gas_hold, ARRAY[cardinality(done.gas_accounts)]);
    END IF;
  END LOOP;
  IF cardinality(settled) > 0 THEN
    PERFORM purser_payments_settled(array_agg(s.agent_id), array_agg(s.id), array_agg(s.tx_hash), array_agg(s.block_number),
        array_agg(s.final_at))
      FROM unnest(settled) AS s;
  END IF;
  IF has_fees THEN
    PERFORM purser_fees_follow(p_chain_id, p_outcomes);
  END IF;
  -- The same outcome, now final: nothing to correct.
  IF finished < jsonb_array_length(p_outcomes) THEN
    WITH same AS (
      UPDATE settlements s SET final_at = clock_timestamp()
        FROM jsonb_to_recordset(p_outcomes) AS o
             ("from" TEXT, asset TEXT, nonce TEXT, status TEXT, proof JSONB, "isFinal" BOOLEAN)
       WHERE s.from_address = o."from" AND s.chain_id = p_chain_id AND s.asset = o.asset AND s.nonce = o.nonce
         AND o."isFinal" AND s.final_at IS NULL AND s.status = 'settled' AND o.status = 'settled'
         AND s.tx_hash = o.proof->>'tx' AND s.block_hash = o.proof->>'blockHash'
      RETURNING s.agent_id, s.id),
    paid AS (
      UPDATE payments p SET final_at = clock_timestamp() FROM same
       WHERE p.agent_id = same.agent_id AND p.id = same.id AND p.status = 'settled')
    SELECT count(*) INTO marked FROM same;
  END IF;
  IF finished + marked < jsonb_array_length(p_outcomes) THEN
    corrected := purser_settlements_correct(p_chain_id, p_outcomes);
  END IF;
  IF cardinality(spared) > 0 THEN
    PERFORM purser_gas_move(p_chain_id, spared, spared_gas, array_fill(0::numeric, ARRAY[cardinality(spared)]));
  END IF;
  RETURN jsonb_build_object('finished', finished, 'corrected', corrected);
END;
$$;
