-- Whether an answer had left us when a call came that has waited so long since. What both processes measured is held
-- against one clock; a client that pays the same again takes longer than the tolerance to read the answer and to ask.
CREATE FUNCTION purser_told_before(p_told_at TIMESTAMPTZ, p_waited_ms NUMERIC)
RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
  SELECT COALESCE(p_told_at <= statement_timestamp() - make_interval(secs => p_waited_ms::float8 / 1000 - 0.02), FALSE);
$$;
