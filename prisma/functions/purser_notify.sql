-- Records a notification for an owner, in the transaction of the event, with one delivery for each webhook that wants it.
-- Without a receiver it is recorded for the app, except for payments as usual (a correction is none): the app lists those anyway,
-- and a row for each would be a cost of every payment. Events that move no money are limited per hour, since third parties may cause them at
-- no cost; corrections of earlier notifications are never limited.
-- For an owner with a confirmed e-mail address it also waits for the next mail (purser_mail_enqueue).
CREATE FUNCTION purser_notify(p_owner_id TEXT, p_type TEXT, p_agent_id TEXT, p_subject_id TEXT, p_data JSONB)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_id TEXT;
  v_is_sent CONSTANT BOOLEAN :=
    EXISTS (SELECT 1 FROM webhooks w
             WHERE w.owner_id = p_owner_id AND w.status = 'active' AND w.types && ARRAY['*', p_type])
    OR EXISTS (SELECT 1 FROM email_addresses e
                WHERE e.owner_id = p_owner_id AND e.address IS NOT NULL AND e.stopped_at IS NULL
                  AND (e.digest <> 'off' OR p_type = ANY (e.urgent)));
  -- A person reads fewer than a program.
  v_hourly CONSTANT INTEGER := CASE WHEN v_is_sent THEN 200 ELSE 50 END;
BEGIN
  IF NOT v_is_sent AND p_type IN ('payment.settled', 'settlement.settled') AND NOT p_data ? 'corrected' THEN
    RETURN;
  END IF;
  IF p_type NOT IN ('payment.settled', 'settlement.settled', 'withdrawal.settled', 'refund.settled', 'refund.failed')
     AND p_type NOT IN ('channel.opened', 'channel.closed', 'channel.refused')
     AND NOT p_data ? 'corrected' AND v_hourly <= (
    SELECT count(*) FROM (
      SELECT 1 FROM notifications n
       WHERE n.owner_id = p_owner_id AND n.type = p_type AND n.agent_id IS NOT DISTINCT FROM p_agent_id
         AND n.created_at > now() - interval '1 hour' LIMIT v_hourly) AS recent) THEN
    RETURN;
  END IF;
  v_id := 'ntf_' || left(replace(gen_random_uuid()::text, '-', ''), 26);
  INSERT INTO notifications (owner_id, id, type, agent_id, subject_id, data, read_at)
  VALUES (p_owner_id, v_id, p_type, p_agent_id, p_subject_id, p_data,
    CASE WHEN NOT purser_needs_reading(p_owner_id, p_type, p_subject_id, p_data) THEN clock_timestamp() END);
  INSERT INTO webhook_deliveries (owner_id, id, webhook_id, notification_id, type)
  SELECT p_owner_id, 'dlv_' || left(replace(gen_random_uuid()::text, '-', ''), 26), w.id, v_id, p_type
    FROM webhooks w
   WHERE w.owner_id = p_owner_id AND w.status = 'active' AND w.types && ARRAY['*', p_type]
  -- A webhook that is being deleted is waited for and left out: a payment must not fail because of it.
     FOR KEY SHARE OF w;
END;
$$;
