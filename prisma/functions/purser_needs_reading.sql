-- Whether a notification is unread at first. What the owner did in the app, and money as usual, are not: they would hide what
-- needs the owner, and anybody can send money. A sign-in is one only from a new device.
CREATE FUNCTION purser_needs_reading(p_owner_id TEXT, p_type TEXT, p_subject_id TEXT, p_data JSONB)
RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN p_type IN ('payment.settled', 'settlement.settled', 'agent.funded') THEN p_data ? 'corrected'
    WHEN p_type IN ('channel.opened', 'channel.closed') THEN FALSE
    WHEN p_type = 'channel.low' THEN p_data ? 'needs'
    WHEN p_type IN ('approval.granted', 'approval.declined', 'order.carried_out') THEN FALSE
    WHEN p_type = 'order.ended' THEN p_data ->> 'reason' <> 'withdrawn'
    WHEN p_type IN ('policy.changed', 'key.created', 'key.revoked', 'owner.stopped', 'owner.resumed') THEN NOT EXISTS (
      SELECT 1 FROM owners o WHERE o.id = p_owner_id AND o.address = lower(p_data ->> 'by'))
    WHEN p_type = 'session.created' THEN purser_is_new_device(p_owner_id, p_subject_id, p_data)
    ELSE TRUE
  END;
$$;
