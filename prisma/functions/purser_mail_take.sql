-- Takes the oldest p_most waiting notifications of an owner and returns the content of one mail: per agent and type, how many
-- there were and the sum of the amounts, and the newest notifications other than settled payments. Groups of payments are left
-- out first, and the mail states how many were left out, so that rare events are always in it. Notifications that come
-- meanwhile, or are too many, wait for the next mail. It reads at most ten times p_most rows.
CREATE FUNCTION purser_mail_take(p_owner_id TEXT, p_urgent BOOLEAN, p_items INTEGER, p_most INTEGER)
RETURNS JSONB LANGUAGE sql AS $$
  WITH due AS MATERIALIZED (
    (SELECT u.ctid AS place FROM mail_waiting u
      WHERE p_urgent AND u.owner_id = p_owner_id AND u.urgent ORDER BY u.created_at LIMIT p_most)
    UNION ALL
    (SELECT d.ctid FROM (
       SELECT w.ctid, w.created_at FROM mail_waiting w
        WHERE NOT p_urgent AND w.owner_id = p_owner_id LIMIT p_most::bigint * 10) AS d
      ORDER BY d.created_at LIMIT p_most)),
  taken AS (
    -- By ctid, so that the planner's estimate of the count does not matter.
    DELETE FROM mail_waiting w WHERE w.ctid = ANY (ARRAY(SELECT place FROM due))
    RETURNING w.notification_id),
  details AS (
    SELECT n.id, n.type, n.agent_id, a.name AS agent_name, n.subject_id, n.data, n.created_at
      -- Each by its key, whatever the statistics: OFFSET keeps the planner from choosing another join.
      FROM taken t
     CROSS JOIN LATERAL (
       SELECT * FROM notifications s WHERE s.owner_id = p_owner_id AND s.id = t.notification_id OFFSET 0) AS n
      LEFT JOIN LATERAL (
       SELECT s.name FROM agents s WHERE s.id = n.agent_id AND s.owner_id = p_owner_id OFFSET 0) AS a ON TRUE),
  all_groups AS (
    SELECT type, agent_id, agent_name, count(*) AS times,
           sum((data ->> 'amount')::numeric) FILTER (WHERE data ->> 'amount' ~ '^[0-9]+(\.[0-9]+)?$') AS amount,
           row_number() OVER (ORDER BY
             CASE WHEN type IN ('payment.settled', 'settlement.settled', 'agent.funded') THEN 2
                  WHEN type ~ '^(payment|settlement)\.' THEN 1 ELSE 0 END,
             count(*) DESC, type, agent_id) AS place
      FROM details GROUP BY type, agent_id, agent_name),
  items AS (
    SELECT * FROM details WHERE p_urgent OR type NOT IN ('payment.settled', 'settlement.settled')
     ORDER BY created_at DESC, id DESC LIMIT p_items)
  SELECT jsonb_build_object(
    'count', (SELECT count(*) FROM details),
    'from', (SELECT min(created_at) FROM details),
    'to', (SELECT max(created_at) FROM details),
    -- As of the statement's start: the taken rows are still visible in it.
    'isMore', (SELECT count(*) FROM due) = p_most AND EXISTS (
      SELECT 1 FROM mail_waiting w WHERE w.owner_id = p_owner_id AND (w.urgent OR NOT p_urgent) OFFSET p_most),
    'groups', coalesce((SELECT jsonb_agg(jsonb_build_object('type', type, 'agentId', agent_id, 'agentName', agent_name,
      'count', times, 'amount', trim_scale(amount)::text) ORDER BY place) FROM all_groups WHERE place <= 100), '[]'),
    'leftOut', (SELECT jsonb_build_object('groups', count(*), 'count', coalesce(sum(times), 0))
                  FROM all_groups WHERE place > 100),
    'items', coalesce((SELECT jsonb_agg(jsonb_build_object('id', id, 'type', type, 'agentId', agent_id, 'agentName',
      agent_name, 'subjectId', subject_id, 'data', data, 'createdAt', created_at) ORDER BY created_at DESC, id DESC)
      FROM items), '[]'));
$$;
