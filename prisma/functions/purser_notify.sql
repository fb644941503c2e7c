-- Records a notification for an owner, in the transaction of the event, whatever receivers the owner has: the app lists all of
-- them. One delivery is added for each webhook that wants it; triggers add it to the next mail (purser_mail_enqueue) and to the
-- owner's devices (purser_push_enqueue). Events that move no money are limited per hour, since third parties may cause them at no
-- cost; corrections of earlier notifications are never limited.
CREATE FUNCTION purser_notify(p_owner_id TEXT, p_type TEXT, p_agent_id TEXT, p_subject_id TEXT, p_data JSONB)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_id CONSTANT TEXT := 'ntf_' || left(replace(gen_random_uuid()::text, '-', ''), 26);
  v_is_unread BOOLEAN;
  -- Anybody can invite an account into a team.
  v_hourly CONSTANT INTEGER := CASE p_type WHEN 'team.invited' THEN 10 ELSE 200 END;
BEGIN
  IF p_type NOT IN ('payment.settled', 'settlement.settled', 'withdrawal.settled', 'refund.settled', 'refund.failed')
     AND p_type NOT IN ('channel.opened', 'channel.closed', 'channel.refused')
     AND NOT p_data ? 'corrected' AND v_hourly <= (
    SELECT count(*) FROM (
      SELECT 1 FROM notifications n
       -- notifications_type_idx has the other types.
       WHERE n.owner_id = p_owner_id AND n.type = p_type AND n.type <> 'payment.settled' AND n.agent_id IS NOT DISTINCT FROM p_agent_id
         AND n.created_at > now() - interval '1 hour' LIMIT v_hourly) AS recent) THEN
    RETURN;
  END IF;
  v_is_unread := purser_needs_reading(p_owner_id, p_type, p_subject_id, p_data);
  INSERT INTO notifications (owner_id, id, type, agent_id, subject_id, data, read_at)
  VALUES (p_owner_id, v_id, p_type, p_agent_id, p_subject_id, p_data, CASE WHEN NOT v_is_unread THEN clock_timestamp() END);
  -- The number of unread ones changes in open apps.
  IF v_is_unread THEN
    PERFORM purser_emit(p_owner_id, 'notification', p_agent_id, v_id);
  END IF;
  INSERT INTO webhook_deliveries (owner_id, id, webhook_id, notification_id, type)
  SELECT p_owner_id, 'dlv_' || left(replace(gen_random_uuid()::text, '-', ''), 26), w.id, v_id, p_type
    FROM webhooks w
   WHERE w.owner_id = p_owner_id AND w.status = 'active' AND w.types && ARRAY['*', p_type]
  -- A webhook that is being deleted is waited for and left out: a payment must not fail because of it.
     FOR KEY SHARE OF w;
END;
$$;
