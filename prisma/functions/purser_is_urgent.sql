-- Whether a notification of a chosen type is sent at once, by e-mail or to a device. Two types are urgent only in some cases: a limit
-- when it is reached (not at 80 %), and a sign-in from a new device.
CREATE FUNCTION purser_is_urgent(n notifications) RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
  SELECT CASE n.type
    WHEN 'agent.limit_reached' THEN (n.data ->> 'percent')::numeric >= 100
    WHEN 'budget.limit_reached' THEN (n.data ->> 'percent')::numeric >= 100
    WHEN 'session.created' THEN purser_is_new_device(n.owner_id, n.subject_id, n.data)
    ELSE TRUE END;
$$;
