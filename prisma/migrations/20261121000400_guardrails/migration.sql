-- Guardrails: the decision and the reservation in one transaction, under the agent's row lock.
--
-- The rolling window: agents.window_sum is the sum of the counted payments newer than
-- agents.window_tail_at. A decision moves the tail to exactly 24 hours ago and takes off what it
-- passes, so each payment is read once on its way out, however many the window holds.

-- A decision updates only window_sum and window_tail_at: with room on the page no index is touched.
ALTER TABLE agents SET (fillfactor = 70);

-- Payments settled after the block a balance was read at are not in that balance yet.
CREATE INDEX payments_settled_block_idx ON payments (agent_id, chain_id, block_number) INCLUDE (amount)
  WHERE status = 'settled' AND kind <> 'incoming';
-- Reservations whose process may have died before it signed.
CREATE INDEX payments_reserved_idx ON payments (created_at) WHERE status = 'reserved';

-- Owners' signed orders, each executed at most once. The nonce is also the authorization's.
CREATE TABLE withdrawal_orders (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  nonce TEXT NOT NULL CHECK (nonce ~ '^0x[0-9a-f]{64}$'),
  payment_id TEXT NOT NULL,
  to_address TEXT NOT NULL CHECK (to_address ~ '^0x[0-9a-f]{40}$'),
  amount NUMERIC(78, 0) NOT NULL CHECK (amount > 0),
  deadline BIGINT NOT NULL,
  signature BYTEA NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (agent_id, nonce)
);

-- How far incoming transfers of a token have been read, and by whom. The hash tells a chain that
-- was rolled back or replaced from one that only grew.
CREATE TABLE incoming_cursors (
  chain_id BIGINT NOT NULL,
  asset TEXT NOT NULL CHECK (asset ~ '^0x[0-9a-f]{40}$'),
  next_block BIGINT NOT NULL,
  last_hash TEXT,
  lease_owner TEXT,
  lease_until TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  updated_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  PRIMARY KEY (chain_id, asset)
);

-- The rules in their fixed order, as (code) of the first that refuses, or null. The same order and
-- the same comparisons as server/plugins/guardrails/explain.ts; a property test holds them together.
CREATE FUNCTION purser_first_refusal(
  p_status TEXT, p_expired BOOLEAN, p_refusal TEXT, p_requested NUMERIC, p_max_amount NUMERIC,
  p_allowed BOOLEAN, p_per_payment NUMERIC, p_limit NUMERIC, p_window_sum NUMERIC,
  p_balance NUMERIC, p_outstanding NUMERIC
) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN p_status <> 'active' THEN 'agent_paused'
    WHEN p_expired THEN 'agent_expired'
    WHEN p_refusal IS NOT NULL THEN p_refusal
    WHEN p_requested > p_max_amount THEN 'price_exceeds_max'
    WHEN NOT p_allowed THEN 'recipient_not_allowed'
    WHEN p_requested > p_per_payment THEN 'per_payment_limit_exceeded'
    WHEN p_window_sum + p_requested > p_limit THEN 'daily_limit_exceeded'
    WHEN p_requested > p_balance - p_outstanding THEN 'insufficient_funds'
  END;
$$;

-- When `p_need` atomic units will have left the window. Walks the counted payments from whichever
-- end is nearer in value, and stops as soon as it knows. Rounded up to the millisecond: an answer
-- rounded down would be refused by the microsecond.
CREATE FUNCTION purser_available_at(
  p_agent_id TEXT, p_edge TIMESTAMPTZ, p_window_sum NUMERIC, p_need NUMERIC
) RETURNS TIMESTAMPTZ LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_at TIMESTAMPTZ;
  v_amount NUMERIC;
  v_running NUMERIC := 0;
BEGIN
  IF p_need * 2 <= p_window_sum THEN
    FOR v_at, v_amount IN
      SELECT p.created_at, p.amount FROM payments p
       WHERE p.agent_id = p_agent_id AND p.created_at > p_edge
         AND p.kind IN ('spend', 'x402') AND p.status IN ('reserved', 'submitted', 'settled', 'unknown')
       ORDER BY p.created_at, p.id
    LOOP
      v_running := v_running + v_amount;
      EXIT WHEN v_running >= p_need;
    END LOOP;
  ELSE
    FOR v_at, v_amount IN
      SELECT p.created_at, p.amount FROM payments p
       WHERE p.agent_id = p_agent_id AND p.created_at > p_edge
         AND p.kind IN ('spend', 'x402') AND p.status IN ('reserved', 'submitted', 'settled', 'unknown')
       ORDER BY p.created_at DESC, p.id DESC
    LOOP
      v_running := v_running + v_amount;
      EXIT WHEN v_running > p_window_sum - p_need;
    END LOOP;
  END IF;
  RETURN date_trunc('milliseconds', v_at + interval '24 hours' + interval '999 microseconds');
END;
$$;

-- Decide and reserve. One round trip; p_dry_run looks without lock or trace.
-- outcome: reserved | blocked | allowed (dry run) | denied (dry run) | replay | running | key_reused |
-- unauthorized | not_found.
CREATE FUNCTION purser_reserve(
  p_agent_id TEXT, p_payment_id TEXT, p_api_key_id TEXT, p_kind TEXT, p_chain_id BIGINT, p_asset TEXT,
  p_to TEXT, p_amount NUMERIC, p_max_amount NUMERIC, p_refusal TEXT, p_nonce TEXT, p_valid_seconds INTEGER,
  p_balance NUMERIC, p_balance_block BIGINT, p_request_id TEXT, p_memo TEXT, p_url TEXT, p_listing_id TEXT,
  p_requirement JSONB, p_route TEXT, p_key TEXT, p_body_hash BYTEA, p_dry_run BOOLEAN
) RETURNS TABLE (
  outcome TEXT, code TEXT, payment_id TEXT, valid_before BIGINT, decided_at TIMESTAMPTZ, snapshot JSONB,
  next_release_at TIMESTAMPTZ, available_at TIMESTAMPTZ, status_code INTEGER, response JSONB
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_agent agents%ROWTYPE;
  v_key idempotency_keys%ROWTYPE;
  v_now TIMESTAMPTZ;
  v_edge TIMESTAMPTZ;
  v_freed NUMERIC;
  v_sum NUMERIC;
  v_reserved NUMERIC;
  v_outstanding NUMERIC;
  v_allowed BOOLEAN;
  v_expired BOOLEAN;
  v_key_code TEXT;
BEGIN
  IF p_dry_run THEN
    SELECT * INTO v_agent FROM agents a WHERE a.id = p_agent_id;
  ELSE
    SELECT * INTO v_agent FROM agents a WHERE a.id = p_agent_id FOR UPDATE;
  END IF;
  IF NOT FOUND THEN
    outcome := 'not_found';
    RETURN NEXT;
    RETURN;
  END IF;
  -- The agent's lock also serializes its idempotency keys.
  IF p_key IS NOT NULL AND NOT p_dry_run THEN
    SELECT * INTO v_key FROM idempotency_keys k
     WHERE k.subject_id = p_agent_id AND k.route = p_route AND k.key = p_key;
    IF FOUND THEN
      outcome := CASE WHEN v_key.body_hash <> p_body_hash THEN 'key_reused'
                      WHEN v_key.status_code IS NULL THEN 'running' ELSE 'replay' END;
      payment_id := v_key.payment_id;
      status_code := v_key.status_code;
      response := v_key.response;
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;
  -- After the lock: time spent waiting for it is over. Never behind the tail, whatever the clock does.
  v_now := GREATEST(clock_timestamp(), v_agent.window_tail_at + interval '24 hours');
  v_edge := v_now - interval '24 hours';
  decided_at := v_now;
  IF p_api_key_id IS NOT NULL THEN
    SELECT CASE WHEN k.revoked_at <= v_now THEN 'api_key_revoked' WHEN k.expires_at <= v_now THEN 'api_key_expired' END
      INTO v_key_code FROM api_keys k WHERE k.id = p_api_key_id AND k.agent_id = p_agent_id;
    IF NOT FOUND OR v_key_code IS NOT NULL THEN
      outcome := 'unauthorized';
      code := COALESCE(v_key_code, 'invalid_api_key');
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;

  SELECT COALESCE(sum(p.amount), 0) INTO v_freed FROM payments p
   WHERE p.agent_id = p_agent_id AND p.created_at > v_agent.window_tail_at AND p.created_at <= v_edge
     AND p.kind IN ('spend', 'x402') AND p.status IN ('reserved', 'submitted', 'settled', 'unknown');
  v_sum := v_agent.window_sum - v_freed;
  -- One statement, one snapshot: a payment that settles meanwhile is counted once.
  SELECT COALESCE(sum(o.amount) FILTER (WHERE o.kind IN ('spend', 'x402') AND o.created_at > v_edge), 0),
         COALESCE(sum(o.amount) FILTER (WHERE o.chain_id = p_chain_id), 0) + COALESCE((
           SELECT sum(s.amount) FROM payments s
            WHERE s.agent_id = p_agent_id AND s.chain_id = p_chain_id AND s.block_number > p_balance_block
              AND s.status = 'settled' AND s.kind <> 'incoming'), 0)
    INTO v_reserved, v_outstanding
    FROM payments o WHERE o.agent_id = p_agent_id AND o.status IN ('reserved', 'submitted', 'unknown');
  v_allowed := EXISTS (SELECT 1 FROM allowlist_entries l WHERE l.agent_id = p_agent_id AND l.address = p_to);
  v_expired := v_agent.expires_at IS NOT NULL AND v_agent.expires_at <= v_now;
  code := purser_first_refusal(v_agent.status, v_expired, p_refusal, p_amount, p_max_amount, v_allowed,
    v_agent.per_payment_limit, v_agent.daily_limit, v_sum, p_balance, v_outstanding);
  snapshot := jsonb_build_object(
    'status', v_agent.status, 'expired', v_expired, 'refusal', p_refusal, 'requested', p_amount::text,
    'maxAmount', p_max_amount::text, 'allowed', v_allowed, 'perPaymentLimit', v_agent.per_payment_limit::text,
    'limit', v_agent.daily_limit::text, 'spent', (v_sum - v_reserved)::text, 'reserved', v_reserved::text,
    'balance', p_balance::text, 'outstanding', v_outstanding::text);

  IF code = 'daily_limit_exceeded' THEN
    SELECT date_trunc('milliseconds', p.created_at + interval '24 hours' + interval '999 microseconds')
      INTO next_release_at FROM payments p
     WHERE p.agent_id = p_agent_id AND p.created_at > v_edge
       AND p.kind IN ('spend', 'x402') AND p.status IN ('reserved', 'submitted', 'settled', 'unknown')
     ORDER BY p.created_at, p.id LIMIT 1;
    IF p_amount <= v_agent.daily_limit THEN
      available_at := purser_available_at(p_agent_id, v_edge, v_sum, v_sum + p_amount - v_agent.daily_limit);
    END IF;
    snapshot := snapshot || jsonb_build_object('nextReleaseAt', next_release_at, 'availableAt', available_at);
  END IF;
  IF p_dry_run THEN
    outcome := CASE WHEN code IS NULL THEN 'allowed' ELSE 'denied' END;
    RETURN NEXT;
    RETURN;
  END IF;

  payment_id := p_payment_id;
  IF code IS NOT NULL THEN
    outcome := 'blocked';
    IF v_freed > 0 THEN
      UPDATE agents a SET window_sum = v_sum, window_tail_at = v_edge WHERE a.id = p_agent_id;
    END IF;
  ELSE
    outcome := 'reserved';
    valid_before := floor(extract(epoch FROM v_now))::bigint + p_valid_seconds;
    UPDATE agents a SET window_sum = v_sum + p_amount, window_tail_at = v_edge WHERE a.id = p_agent_id;
    IF p_key IS NOT NULL THEN
      INSERT INTO idempotency_keys (subject_id, route, key, body_hash, payment_id)
      VALUES (p_agent_id, p_route, p_key, p_body_hash, p_payment_id);
    END IF;
  END IF;
  INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, memo, api_key_id,
    request_id, denial_code, policy, url, listing_id, requirement, nonce, valid_before, created_at, updated_at)
  VALUES (p_agent_id, p_payment_id, p_kind, outcome, p_chain_id, p_asset, p_to, p_amount, p_memo, p_api_key_id,
    p_request_id, code, snapshot, p_url, p_listing_id, p_requirement,
    CASE WHEN code IS NULL THEN p_nonce END, valid_before, v_now, v_now);
  RETURN NEXT;
END;
$$;

-- A withdrawal needs no permission but its owner's signature, checked before: only money that is
-- there and not promised yet, and a nonce never seen.
-- outcome: reserved | insufficient | replayed | expired | replay | running | key_reused | not_found.
CREATE FUNCTION purser_reserve_withdrawal(
  p_agent_id TEXT, p_payment_id TEXT, p_chain_id BIGINT, p_asset TEXT, p_to TEXT, p_amount NUMERIC,
  p_nonce TEXT, p_deadline BIGINT, p_signature BYTEA, p_valid_seconds INTEGER,
  p_balance NUMERIC, p_balance_block BIGINT, p_request_id TEXT,
  p_subject_id TEXT, p_route TEXT, p_key TEXT, p_body_hash BYTEA
) RETURNS TABLE (
  outcome TEXT, payment_id TEXT, valid_before BIGINT, available NUMERIC, status_code INTEGER, response JSONB
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_key idempotency_keys%ROWTYPE;
  v_now TIMESTAMPTZ;
BEGIN
  PERFORM 1 FROM agents a WHERE a.id = p_agent_id FOR UPDATE;
  IF NOT FOUND THEN
    outcome := 'not_found';
    RETURN NEXT;
    RETURN;
  END IF;
  IF p_key IS NOT NULL THEN
    SELECT * INTO v_key FROM idempotency_keys k
     WHERE k.subject_id = p_subject_id AND k.route = p_route AND k.key = p_key;
    IF FOUND THEN
      outcome := CASE WHEN v_key.body_hash <> p_body_hash THEN 'key_reused'
                      WHEN v_key.status_code IS NULL THEN 'running' ELSE 'replay' END;
      payment_id := v_key.payment_id;
      status_code := v_key.status_code;
      response := v_key.response;
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;
  v_now := clock_timestamp();
  IF EXISTS (SELECT 1 FROM withdrawal_orders w WHERE w.agent_id = p_agent_id AND w.nonce = p_nonce)
     OR EXISTS (SELECT 1 FROM settlements s, agents a
                 WHERE a.id = p_agent_id AND s.from_address = a.wallet_address AND s.chain_id = p_chain_id
                   AND s.asset = p_asset AND s.nonce = p_nonce) THEN
    outcome := 'replayed';
    RETURN NEXT;
    RETURN;
  END IF;
  IF p_deadline <= extract(epoch FROM v_now) THEN
    outcome := 'expired';
    RETURN NEXT;
    RETURN;
  END IF;
  available := p_balance - purser_outstanding(p_agent_id, p_chain_id, p_balance_block);
  IF p_amount > available THEN
    outcome := 'insufficient';
    RETURN NEXT;
    RETURN;
  END IF;
  outcome := 'reserved';
  payment_id := p_payment_id;
  valid_before := LEAST(floor(extract(epoch FROM v_now))::bigint + p_valid_seconds, p_deadline);
  INSERT INTO withdrawal_orders (agent_id, nonce, payment_id, to_address, amount, deadline, signature)
  VALUES (p_agent_id, p_nonce, p_payment_id, p_to, p_amount, p_deadline, p_signature);
  IF p_key IS NOT NULL THEN
    INSERT INTO idempotency_keys (subject_id, route, key, body_hash, payment_id)
    VALUES (p_subject_id, p_route, p_key, p_body_hash, p_payment_id);
  END IF;
  INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, request_id,
    nonce, valid_before, created_at, updated_at)
  VALUES (p_agent_id, p_payment_id, 'withdrawal', 'reserved', p_chain_id, p_asset, p_to, p_amount, p_request_id,
    p_nonce, valid_before, v_now, v_now);
  RETURN NEXT;
END;
$$;

-- What a wallet has promised and its balance at `p_balance_block` does not show yet.
CREATE FUNCTION purser_outstanding(p_agent_id TEXT, p_chain_id BIGINT, p_balance_block BIGINT)
RETURNS NUMERIC LANGUAGE sql STABLE AS $$
  SELECT COALESCE((SELECT sum(o.amount) FROM payments o
                    WHERE o.agent_id = p_agent_id AND o.chain_id = p_chain_id
                      AND o.status IN ('reserved', 'submitted', 'unknown')), 0)
       + COALESCE((SELECT sum(s.amount) FROM payments s
                    WHERE s.agent_id = p_agent_id AND s.chain_id = p_chain_id AND s.block_number > p_balance_block
                      AND s.status = 'settled' AND s.kind <> 'incoming'), 0);
$$;

-- Nothing was signed: the reservation is released, and its idempotency key with it, since nothing
-- moved and the key may succeed later. Only while 'reserved': persisting a signature makes the row
-- 'submitted' in the same statement, and fails if this came first.
CREATE FUNCTION purser_void_unsigned(
  p_agent_id TEXT, p_payment_id TEXT, p_failure_code TEXT, p_failure_detail TEXT
) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM agents WHERE id = p_agent_id FOR UPDATE;
  PERFORM 1 FROM payments WHERE agent_id = p_agent_id AND id = p_payment_id AND status = 'reserved' FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM purser_payment_voided(p_agent_id, p_payment_id, p_failure_code, p_failure_detail);
  DELETE FROM idempotency_keys WHERE payment_id = p_payment_id AND status_code IS NULL;
  DELETE FROM withdrawal_orders WHERE agent_id = p_agent_id AND payment_id = p_payment_id;
  RETURN true;
END;
$$;
CREATE INDEX idempotency_keys_payment_id_idx ON idempotency_keys (payment_id) WHERE status_code IS NULL;

-- An agent's settlement exists only on a live reservation: inserting it is what submits the payment,
-- in the same statement. A signer that comes after its reservation was released is refused here.
CREATE FUNCTION purser_submit_payment() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  UPDATE payments SET status = 'submitted', updated_at = clock_timestamp()
   WHERE agent_id = NEW.agent_id AND id = NEW.id AND status = 'reserved';
  IF NOT FOUND AND EXISTS (
    SELECT 1 FROM payments WHERE agent_id = NEW.agent_id AND id = NEW.id AND status IN ('voided', 'blocked')
  ) THEN
    RAISE EXCEPTION 'the reservation of % is gone', NEW.id USING ERRCODE = 'PU001';
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER settlements_accepted AFTER INSERT ON settlements FOR EACH ROW
  WHEN (NEW.agent_id IS NOT NULL) EXECUTE FUNCTION purser_submit_payment();

-- Server-sent events. A stream reads in the order (tx, seq) and only below the oldest running
-- transaction, so a row committed late is never skipped, whatever replica serves the stream.
CREATE TABLE events (
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  tx BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
  seq BIGSERIAL NOT NULL,
  type TEXT NOT NULL CHECK (type IN ('payment', 'agent', 'session')),
  agent_id TEXT,
  subject_id TEXT NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  PRIMARY KEY (owner_id, tx, seq)
);
CREATE INDEX events_created_at_idx ON events (created_at);

CREATE FUNCTION purser_emit(p_owner_id TEXT, p_type TEXT, p_agent_id TEXT, p_subject_id TEXT)
RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (owner_id, type, agent_id, subject_id) VALUES (p_owner_id, p_type, p_agent_id, p_subject_id);
  PERFORM pg_notify('purser_events', p_owner_id);
END;
$$;

-- A reservation lives milliseconds until it is submitted or voided: it is not worth an event.
-- No NOTIFY here: transactions that notify commit only one after another, which would bound the rate
-- of payments. Processes with open streams look for new rows a few times a second instead.
CREATE FUNCTION purser_payment_event() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status <> 'reserved' THEN
    INSERT INTO events (owner_id, type, agent_id, subject_id)
    SELECT a.owner_id, 'payment', a.id, NEW.id FROM agents a WHERE a.id = NEW.agent_id;
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER payments_inserted AFTER INSERT ON payments FOR EACH ROW EXECUTE FUNCTION purser_payment_event();
CREATE TRIGGER payments_changed AFTER UPDATE OF status, delivered ON payments FOR EACH ROW
  WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.delivered IS DISTINCT FROM NEW.delivered)
  EXECUTE FUNCTION purser_payment_event();

CREATE FUNCTION purser_agent_event() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  v_agent_id TEXT;
BEGIN
  IF TG_TABLE_NAME = 'agents' THEN
    v_agent_id := NEW.id;
  ELSIF TG_OP = 'DELETE' THEN
    v_agent_id := OLD.agent_id;
  ELSE
    v_agent_id := NEW.agent_id;
  END IF;
  PERFORM purser_emit(a.owner_id, 'agent', a.id, a.id) FROM agents a WHERE a.id = v_agent_id;
  RETURN NULL;
END;
$$;
CREATE TRIGGER agents_inserted AFTER INSERT ON agents FOR EACH ROW EXECUTE FUNCTION purser_agent_event();
CREATE TRIGGER agents_changed
  AFTER UPDATE OF name, status, daily_limit, per_payment_limit, expires_at, archived_at ON agents FOR EACH ROW
  EXECUTE FUNCTION purser_agent_event();
CREATE TRIGGER allowlist_changed AFTER INSERT OR UPDATE OR DELETE ON allowlist_entries FOR EACH ROW
  EXECUTE FUNCTION purser_agent_event();
CREATE TRIGGER api_keys_changed AFTER INSERT OR UPDATE OF revoked_at, expires_at, label, rotated_to_id ON api_keys
  FOR EACH ROW EXECUTE FUNCTION purser_agent_event();

CREATE FUNCTION purser_session_event() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  PERFORM purser_emit(OLD.owner_id, 'session', NULL, OLD.id);
  RETURN NULL;
END;
$$;
CREATE TRIGGER sessions_revoked AFTER UPDATE OF revoked_at ON sessions FOR EACH ROW
  WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION purser_session_event();
CREATE TRIGGER sessions_deleted AFTER DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION purser_session_event();
