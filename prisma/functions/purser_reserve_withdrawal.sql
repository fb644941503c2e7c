-- Reserves a withdrawal. It needs only its owner's signature, which was checked before: the money must be there and not
-- promised elsewhere, and the nonce must be new.
-- p_request has the members that are read first; the four of an idempotency key may be missing. proof: the signed order, as the
-- audit keeps it.
-- members: of a team, the version of the list of members with which the signatures were counted.
-- outcome: reserved | gas (response contains when there will be some) | insufficient | replayed | expired | clock_apart |
-- replay | running | key_reused | members_changed | given_up | not_found.
CREATE FUNCTION purser_reserve_withdrawal(p_request JSONB) RETURNS TABLE (
  outcome TEXT, payment_id TEXT, valid_before BIGINT, available NUMERIC, status_code INTEGER, response TEXT
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  ask RECORD;
  v_key idempotency_keys%ROWTYPE;
  v_now TIMESTAMPTZ;
  v_owner_id TEXT;
  v_gas JSONB;
BEGIN
  SELECT * INTO ask FROM jsonb_to_record(p_request) AS j (
    agent_id TEXT, payment_id TEXT, chain_id BIGINT, asset TEXT, payee TEXT, amount NUMERIC, nonce TEXT,
    deadline BIGINT, signature BYTEA, valid_seconds INTEGER, balance NUMERIC, balance_block BIGINT,
    request_id TEXT, subject_id TEXT, route TEXT, key TEXT, body_hash BYTEA, head_time BIGINT, gas_hold NUMERIC, proof JSONB, members INTEGER);
  SELECT a.owner_id INTO v_owner_id FROM agents a WHERE a.id = ask.agent_id FOR UPDATE;
  IF NOT FOUND THEN
    outcome := 'not_found';
    RETURN NEXT;
    RETURN;
  END IF;
  PERFORM purser_assert_not_moved(v_owner_id);
  IF ask.key IS NOT NULL THEN
    SELECT * INTO v_key FROM idempotency_keys k
     WHERE k.subject_id = ask.subject_id AND k.route = ask.route AND k.key = ask.key;
    IF FOUND THEN
      outcome := CASE WHEN v_key.body_hash <> ask.body_hash THEN 'key_reused'
                      WHEN v_key.status_code IS NULL THEN 'running' ELSE 'replay' END;
      payment_id := v_key.payment_id;
      status_code := v_key.status_code;
      response := v_key.response;
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;
  IF ask.members IS NOT NULL THEN
    -- A change of the list deletes these rows.
    PERFORM 1 FROM team_members m WHERE m.team_id = v_owner_id FOR SHARE;
    IF ask.members <> (SELECT count(*) FROM owner_orders o
                        WHERE o.owner_id = v_owner_id AND o.kind = 'Members' AND o.used_at IS NOT NULL) THEN
      outcome := 'members_changed';
      RETURN NEXT;
      RETURN;
    END IF;
    IF EXISTS (SELECT 1 FROM waiting_orders w WHERE w.nonce = ask.nonce AND w.end_reason IS NOT NULL) THEN
      outcome := 'given_up';
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;
  v_now := clock_timestamp();
  IF EXISTS (SELECT 1 FROM withdrawal_orders w WHERE w.agent_id = ask.agent_id AND w.nonce = ask.nonce)
     OR EXISTS (SELECT 1 FROM settlements s, agents a
                 WHERE a.id = ask.agent_id AND s.from_address = a.wallet_address AND s.chain_id = ask.chain_id
                   AND s.asset = ask.asset AND s.nonce = ask.nonce) THEN
    outcome := 'replayed';
    RETURN NEXT;
    RETURN;
  END IF;
  IF purser_clock_apart(ask.head_time, ask.valid_seconds) THEN
    outcome := 'clock_apart';
    RETURN NEXT;
    RETURN;
  END IF;
  IF ask.deadline <= extract(epoch FROM v_now) THEN
    outcome := 'expired';
    RETURN NEXT;
    RETURN;
  END IF;
  available := ask.balance - purser_outstanding(ask.agent_id, ask.chain_id, ask.balance_block);
  IF ask.amount > available THEN
    outcome := 'insufficient';
    RETURN NEXT;
    RETURN;
  END IF;
  v_gas := purser_gas_reserve(ask.chain_id, 'withdrawals', 'withdrawer:' || v_owner_id, coalesce(ask.gas_hold, 0),
    ask.amount, NULL, FALSE);
  IF v_gas ? 'code' THEN
    outcome := 'gas';
    response := v_gas::text;
    RETURN NEXT;
    RETURN;
  END IF;
  outcome := 'reserved';
  payment_id := ask.payment_id;
  valid_before := LEAST(purser_valid_before(ask.valid_seconds, ask.head_time), ask.deadline);
  INSERT INTO withdrawal_orders (agent_id, nonce, payment_id, to_address, amount, deadline, signature)
  VALUES (ask.agent_id, ask.nonce, ask.payment_id, ask.payee, ask.amount, ask.deadline, ask.signature);
  IF ask.key IS NOT NULL THEN
    INSERT INTO idempotency_keys (subject_id, route, key, body_hash, payment_id)
    VALUES (ask.subject_id, ask.route, ask.key, ask.body_hash, ask.payment_id);
  END IF;
  INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, request_id,
    nonce, valid_before, gas_hold, created_at, updated_at)
  VALUES (ask.agent_id, ask.payment_id, 'withdrawal', 'reserved', ask.chain_id, ask.asset, ask.payee, ask.amount,
    ask.request_id, ask.nonce, valid_before, coalesce(ask.gas_hold, 0), v_now, v_now);
  INSERT INTO audit_notes (owner_id, agent_id, actor, action, after, request_id, proof)
  SELECT a.owner_id, a.id, ask.proof #>> '{signers,0,signer}', 'withdrawal.ordered',
         jsonb_build_object('paymentId', ask.payment_id, 'to', ask.payee, 'amountAtomic', ask.amount::text,
           'network', 'eip155:' || ask.chain_id, 'nonce', ask.nonce),
         ask.request_id, ask.proof
    FROM agents a WHERE a.id = ask.agent_id;
  RETURN NEXT;
END;
$$;
