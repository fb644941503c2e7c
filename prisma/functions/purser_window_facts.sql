-- The facts of one time-window limit, for a snapshot; empty where the limit is not set.
CREATE FUNCTION purser_window_facts(p_name TEXT, p_limit NUMERIC, p_used NUMERIC, p_reserved NUMERIC)
RETURNS JSONB LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_limit IS NULL THEN '{}'::jsonb ELSE jsonb_build_object(
    p_name || 'Limit', p_limit::text, p_name || 'Spent', (p_used - p_reserved)::text,
    p_name || 'Reserved', p_reserved::text) END;
$$;
