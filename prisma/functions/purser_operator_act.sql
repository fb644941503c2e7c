-- Appends one entry to the operators' audit chain, in the caller's transaction: the change and its entry are written together
-- or not at all.
CREATE FUNCTION purser_operator_act(p_id TEXT, p_who JSONB, p_action TEXT, p_what JSONB) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
  v_head operator_head%ROWTYPE;
  v_at TIMESTAMPTZ(6);
  v_body TEXT;
  v_hash BYTEA;
BEGIN
  INSERT INTO operator_head DEFAULT VALUES ON CONFLICT DO NOTHING;
  SELECT * INTO STRICT v_head FROM operator_head FOR UPDATE;
  -- Always later than the entry before it, even if the clock jumped.
  v_at := GREATEST(clock_timestamp(), v_head.at + interval '1 microsecond');
  v_body := jsonb_build_object(
    'seq', v_head.seq + 1, 'id', p_id,
    'at', to_char(v_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'who', p_who, 'action', p_action, 'what', p_what)::text;
  v_hash := purser_chain_hash(v_head.hash, v_body);
  INSERT INTO operator_actions (seq, id, action, body, prev_hash, hash, created_at)
  VALUES (v_head.seq + 1, p_id, p_action, v_body, v_head.hash, v_hash, v_at);
  UPDATE operator_head SET seq = v_head.seq + 1, hash = v_hash, at = v_at;
  RETURN v_head.seq + 1;
END;
$$;
