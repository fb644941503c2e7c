-- The response of a cancellable call was sent, unless a cancellation came first: the advisory lock puts one before the other
-- without locking the agent's row.
CREATE FUNCTION purser_call_told(p_agent_id TEXT, p_route TEXT, p_key TEXT, p_call TEXT, p_ago_ms NUMERIC)
RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(p_agent_id || ' ' || p_call, 0));
  UPDATE idempotency_keys
     SET told_at = statement_timestamp() - make_interval(secs => p_ago_ms::float8 / 1000), told_call = p_call
   WHERE subject_id = p_agent_id AND route = p_route AND key = p_key AND implicit AND told_at IS NULL
     AND NOT EXISTS (SELECT 1 FROM canceled_calls c WHERE c.agent_id = p_agent_id AND c.call = p_call);
END;
$$;
