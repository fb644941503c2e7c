-- A payment of an agent's wallet that is on the chain and in no row (after a restore of an older database, or made by another
-- copy of this service with the same keys). It is written as settled, in the window at the time of its block, so that the limit
-- counts it. The settlement takes the natural key, so the authorization is not accepted again.
-- Returns the payment's id, or null where a row existed.
CREATE FUNCTION purser_ledger_found(p_found JSONB) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
  ask RECORD;
  v_known payments%ROWTYPE;
BEGIN
  SELECT * INTO ask FROM jsonb_to_record(p_found) AS j (
    agent_id TEXT, payment_id TEXT, chain_id BIGINT, asset TEXT, payer TEXT, payee TEXT, amount NUMERIC, nonce TEXT,
    tx_hash TEXT, block BIGINT, block_hash TEXT, at TIMESTAMPTZ, memo TEXT, terms JSONB);
  PERFORM 1 FROM agents a WHERE a.id = ask.agent_id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  -- If the process died before it handed on the authorization, there may be a reserved payment without a settlement.
  SELECT * INTO v_known FROM payments p
   WHERE p.agent_id = ask.agent_id AND p.nonce = ask.nonce AND p.chain_id = ask.chain_id
     AND p.created_at > ask.at - interval '1 hour' FOR UPDATE;
  INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value, valid_after,
    valid_before, signature, relay, status, tx_hash, block_number, block_hash, proof, final_at, by_other, settled_at, created_at, terms)
  VALUES (ask.payer, ask.chain_id, ask.asset, ask.nonce, coalesce(v_known.id, ask.payment_id), coalesce(v_known.kind, 'spend'),
    ask.agent_id, ask.payee, ask.amount, 0, 0, '', FALSE, 'settled', ask.tx_hash, ask.block, ask.block_hash,
    jsonb_build_object('kind', 'receipt', 'tx', ask.tx_hash, 'block', ask.block::text, 'blockHash', ask.block_hash),
    clock_timestamp(), TRUE, clock_timestamp(), ask.at, ask.terms)
  ON CONFLICT (from_address, chain_id, asset, nonce) DO NOTHING;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF v_known.id IS NULL THEN
    INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, memo, nonce, tx_hash,
      block_number, settled_at, final_at, created_at, maximum)
    VALUES (ask.agent_id, ask.payment_id, 'spend', 'settled', ask.chain_id, ask.asset, ask.payee, ask.amount, ask.memo,
      ask.nonce, ask.tx_hash, ask.block, ask.at, clock_timestamp(), ask.at, (ask.terms->>'maximum')::numeric);
    -- In which budgets it was reserved is not known: in those of its agent now.
    INSERT INTO budget_payments (agent_id, payment_id, budget_id, at, payer, amount, counted)
    SELECT a.id, ask.payment_id, b.id, ask.at, a.wallet_address, ask.amount, FALSE
      FROM agents a, unnest(a.budget_ids) AS b (id) WHERE a.id = ask.agent_id;
    PERFORM purser_count_payment(ask.agent_id, ask.payment_id, 1);
  ELSE
    PERFORM purser_payment_amount(ask.agent_id, v_known.id, ask.amount);
    UPDATE payments SET status = 'settled', tx_hash = ask.tx_hash, block_number = ask.block, settled_at = ask.at,
      final_at = clock_timestamp(), failure_code = NULL, failure_detail = NULL, updated_at = clock_timestamp()
     WHERE agent_id = ask.agent_id AND id = v_known.id;
    IF NOT v_known.counted THEN
      PERFORM purser_count_payment(ask.agent_id, v_known.id, 1);
    END IF;
  END IF;
  RETURN coalesce(v_known.id, ask.payment_id);
END;
$$;
