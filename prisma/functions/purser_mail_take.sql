-- Takes what waits for an owner's mail and answers what the mail will say: how often each thing happened to each agent,
-- with the sum of the money, and the newest of what is more than a payment made. What comes meanwhile waits for the next.
CREATE FUNCTION purser_mail_take(p_owner_id TEXT, p_urgent BOOLEAN, p_items INTEGER) RETURNS JSONB LANGUAGE sql AS $$
  WITH taken AS (
    DELETE FROM mail_waiting w WHERE w.owner_id = p_owner_id AND (w.urgent OR NOT p_urgent)
    RETURNING w.notification_id),
  told AS (
    SELECT n.id, n.type, n.agent_id, a.name AS agent_name, n.subject_id, n.data, n.created_at
      FROM taken t
      JOIN notifications n ON n.owner_id = p_owner_id AND n.id = t.notification_id
      LEFT JOIN agents a ON a.id = n.agent_id AND a.owner_id = p_owner_id),
  groups AS (
    SELECT type, agent_id, agent_name, count(*) AS times,
           sum((data ->> 'amount')::numeric) FILTER (WHERE data ->> 'amount' ~ '^[0-9]+(\.[0-9]+)?$') AS amount
      FROM told GROUP BY type, agent_id, agent_name ORDER BY count(*) DESC, type LIMIT 100),
  items AS (
    SELECT * FROM told WHERE p_urgent OR type NOT IN ('payment.settled', 'settlement.settled')
     ORDER BY created_at DESC, id DESC LIMIT p_items)
  SELECT jsonb_build_object(
    'count', (SELECT count(*) FROM told),
    'from', (SELECT min(created_at) FROM told),
    'to', (SELECT max(created_at) FROM told),
    'groups', coalesce((SELECT jsonb_agg(jsonb_build_object('type', type, 'agentId', agent_id, 'agentName', agent_name,
      'count', times, 'amount', trim_scale(amount)::text)) FROM groups), '[]'),
    'items', coalesce((SELECT jsonb_agg(jsonb_build_object('id', id, 'type', type, 'agentId', agent_id, 'agentName',
      agent_name, 'subjectId', subject_id, 'data', data, 'createdAt', created_at) ORDER BY created_at DESC, id DESC)
      FROM items), '[]'));
$$;
