-- Whether a sign-in came from an address and browser that no other session of the owner had. The sign-in that created the owner is
-- no news. The owner's age counts besides, since old sessions are deleted.
CREATE FUNCTION purser_is_new_device(p_owner_id TEXT, p_session_id TEXT, p_data JSONB)
RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
  SELECT (EXISTS (SELECT 1 FROM sessions s WHERE s.owner_id = p_owner_id AND s.id <> p_session_id)
      OR EXISTS (SELECT 1 FROM owners o WHERE o.id = p_owner_id AND o.created_at < now() - interval '1 second'))
    AND NOT EXISTS (
      SELECT 1 FROM sessions s
       WHERE s.owner_id = p_owner_id AND s.id <> p_session_id AND s.ip = p_data ->> 'ip'
         AND s.user_agent = p_data -> 'thirdParty' ->> 'userAgent');
$$;
