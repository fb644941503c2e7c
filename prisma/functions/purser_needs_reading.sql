-- Whether a notification is unread at first. What the owner did in the app, and payments as usual, are not: they would hide
-- what needs the owner. The first sign-in of an owner is no news either, and nor is a device that has signed in before.
CREATE FUNCTION purser_needs_reading(p_owner_id TEXT, p_type TEXT, p_subject_id TEXT, p_data JSONB)
RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN p_type IN ('payment.settled', 'settlement.settled') THEN p_data ? 'corrected'
    WHEN p_type IN ('approval.granted', 'approval.declined') THEN FALSE
    WHEN p_type IN ('policy.changed', 'key.created', 'key.revoked') THEN NOT EXISTS (
      SELECT 1 FROM owners o WHERE o.id = p_owner_id AND o.address = lower(p_data ->> 'by'))
    WHEN p_type = 'session.created' THEN
      EXISTS (SELECT 1 FROM sessions s WHERE s.owner_id = p_owner_id AND s.id <> p_subject_id)
      AND NOT EXISTS (
        SELECT 1 FROM sessions s
         WHERE s.owner_id = p_owner_id AND s.id <> p_subject_id AND s.ip = p_data ->> 'ip'
           AND s.user_agent = p_data -> 'thirdParty' ->> 'userAgent')
    ELSE TRUE
  END;
$$;
