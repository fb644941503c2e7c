-- The earlier call that an identical call without a key of its own joins, unless its response was sent before the new call
-- arrived (the caller of this function decides that by its own clock). Only a call whose payment settled or may still settle:
-- for ten minutes after its response, or without limit until the chain has decided. Only the newest such call counts: there is
-- none after a further purchase.
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
