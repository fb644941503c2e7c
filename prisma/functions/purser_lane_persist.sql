-- Persists one signed transaction: its bytes, the payments in it, its nonce and its gas limit. All or nothing, and only while
-- the lease is held and every row is still claimed under it.
CREATE FUNCTION purser_lane_persist(
  p_chain_id BIGINT, p_address TEXT, p_owner TEXT, p_epoch BIGINT, p_nonce BIGINT,
  p_to TEXT, p_calldata BYTEA, p_gas_limit BIGINT,
  p_hash TEXT, p_raw BYTEA, p_max_fee NUMERIC, p_priority_fee NUMERIC,
  p_actions TEXT[], p_from TEXT[], p_asset TEXT[], p_nonces TEXT[], p_sent_block BIGINT
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  touched INTEGER;
  again JSONB;
BEGIN
  UPDATE relayer_lanes SET next_nonce = p_nonce + 1
   WHERE chain_id = p_chain_id AND address = p_address AND lease_owner = p_owner
     AND lease_epoch = p_epoch AND lease_until > clock_timestamp() AND next_nonce <= p_nonce;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'lane lease lost' USING ERRCODE = 'PU001';
  END IF;
  INSERT INTO relayer_transactions (chain_id, lane_address, nonce, to_address, calldata, gas_limit, sent_block)
  VALUES (p_chain_id, p_address, p_nonce, p_to, p_calldata, p_gas_limit, p_sent_block);
  INSERT INTO relayer_attempts
    (hash, chain_id, lane_address, nonce, attempt, raw, max_fee_wei, priority_fee_wei)
  VALUES (p_hash, p_chain_id, p_address, p_nonce, 1, p_raw, p_max_fee, p_priority_fee);
  -- Rows are found by their key, and the status is compared in a form that no partial index matches: a burst has
  -- thousands of open rows, and the planner expects few.
  WITH claimed AS (
    UPDATE settlements s
       SET status = 'submitted', tx_hash = p_hash, attempts = s.attempts + 1, updated_at = clock_timestamp()
      FROM unnest(p_actions, p_from, p_asset, p_nonces) WITH ORDINALITY
        AS item (action, from_address, asset, nonce, position)
      CROSS JOIN LATERAL (
        SELECT s.ctid FROM settlements s
         WHERE s.from_address = item.from_address AND s.chain_id = p_chain_id AND s.asset = item.asset
           AND s.nonce = item.nonce
         LIMIT 1) AS one
     WHERE s.ctid = one.ctid AND s.chain_id = p_chain_id AND s.status IS NOT DISTINCT FROM 'queued'
       AND s.lane_address IS NOT DISTINCT FROM p_address AND s.lane_epoch IS NOT DISTINCT FROM p_epoch
    RETURNING s.from_address, s.asset, s.nonce, s.attempts, s.gas_hold, s.gas_accounts, item.action, item.position),
  carried AS (
    INSERT INTO settlement_transactions
      (chain_id, lane_address, lane_nonce, position, action, from_address, asset, nonce, gas_hold)
    SELECT p_chain_id, p_address, p_nonce, c.position - 1, c.action, c.from_address, c.asset, c.nonce, c.gas_hold
      FROM claimed c)
  SELECT count(*), jsonb_agg(jsonb_build_object('accounts', c.gas_accounts, 'hold', c.gas_hold))
           FILTER (WHERE c.attempts > 1 AND c.gas_hold > 0)
    INTO touched, again FROM claimed c;
  IF touched <> cardinality(p_from) THEN
    RAISE EXCEPTION 'a claimed settlement changed hands' USING ERRCODE = 'PU002';
  END IF;
  -- The first transaction uses the gas that was reserved at acceptance; a further attempt reserves again.
  IF again IS NOT NULL THEN
    PERFORM purser_gas_move(p_chain_id, array_agg(a), array_agg((e->>'hold')::numeric), array_agg(0::numeric))
      FROM jsonb_array_elements(again) AS e, jsonb_array_elements_text(e->'accounts') AS a;
  END IF;
END;
$$;
