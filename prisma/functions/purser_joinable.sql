-- The earlier call that an identical one without a key of its own joins, unless it was told before that one came (which
-- whoever asks decides, by its own clock): its money moved, or may yet move. For ten minutes after the answer; without an end while the chain has not decided. Only
-- the newest can be one: a further purchase is made where there is none.
CREATE FUNCTION purser_joinable(p_subject_id TEXT, p_route TEXT, p_body_hash BYTEA)
RETURNS SETOF idempotency_keys LANGUAGE sql STABLE AS $$
  SELECT k.* FROM (
      SELECT * FROM idempotency_keys n
       WHERE n.subject_id = p_subject_id AND n.route = p_route AND n.body_hash = p_body_hash AND n.implicit
       ORDER BY n.created_at DESC LIMIT 1) k
    JOIN payments p ON p.agent_id = k.subject_id AND p.id = k.payment_id
   WHERE p.outstanding OR (p.status = 'settled'
     AND GREATEST(k.updated_at, p.settled_at) > statement_timestamp() - interval '10 minutes');
$$;
