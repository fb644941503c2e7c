-- Writes proven outcomes: settlement, the agent's payment and its budget, and the word to every waiter,
-- in one transaction. Rows that are final already stay as they are.
-- Each element: {from, asset, nonce, status, hash, block, byOther, reason, message}.
CREATE FUNCTION purser_settlements_finalize(p_chain_id BIGINT, p_outcomes JSONB)
RETURNS INTEGER LANGUAGE plpgsql AS $$
DECLARE
  done settlements%ROWTYPE;
  finished INTEGER := 0;
BEGIN
  -- One order of locks for all finalizers.
  PERFORM 1 FROM settlements s
    JOIN jsonb_to_recordset(p_outcomes) AS o ("from" TEXT, asset TEXT, nonce TEXT)
      ON s.from_address = o."from" AND s.chain_id = p_chain_id AND s.asset = o.asset AND s.nonce = o.nonce
   ORDER BY s.agent_id, s.from_address, s.nonce FOR UPDATE OF s;
  FOR done IN
    WITH changed AS (
      UPDATE settlements s
         SET status = o.status, tx_hash = coalesce(o.hash, s.tx_hash), block_number = o.block,
             by_other = coalesce(o."byOther", FALSE), error_reason = o.reason, error_message = o.message,
             settled_at = CASE WHEN o.status = 'settled' THEN clock_timestamp() END,
             updated_at = clock_timestamp()
        FROM jsonb_to_recordset(p_outcomes) AS o
             ("from" TEXT, asset TEXT, nonce TEXT, status TEXT, hash TEXT, block BIGINT, "byOther" BOOLEAN,
              reason TEXT, message TEXT)
       WHERE s.from_address = o."from" AND s.chain_id = p_chain_id AND s.asset = o.asset
         AND s.nonce = o.nonce AND s.status IN ('queued', 'submitted')
      RETURNING s.*)
    SELECT * FROM changed ORDER BY agent_id, from_address, nonce
  LOOP
    finished := finished + 1;
    IF done.agent_id IS NOT NULL THEN
      IF done.status = 'settled' THEN
        PERFORM purser_payment_settled(done.agent_id, done.id, done.tx_hash, done.block_number);
      ELSE
        PERFORM purser_payment_voided(done.agent_id, done.id, done.error_reason, done.error_message);
      END IF;
    END IF;
    PERFORM pg_notify('purser_settled', jsonb_build_object('id', done.id, 'status', done.status,
      'txHash', done.tx_hash, 'block', done.block_number::text, 'at', done.settled_at,
      'byOther', done.by_other, 'reason', done.error_reason, 'message', left(done.error_message, 500))::text);
  END LOOP;
  RETURN finished;
END;
$$;
