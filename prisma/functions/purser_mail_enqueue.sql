-- Puts a notification on the list for its owner's next mail, in the same transaction.
CREATE FUNCTION purser_mail_enqueue() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO mail_waiting (owner_id, notification_id, urgent)
  SELECT e.owner_id, NEW.id, decision.urgent
    FROM email_addresses e,
         LATERAL (SELECT NEW.type = ANY (e.urgent) AND purser_is_urgent(NEW) AS urgent) AS decision
   WHERE e.owner_id = NEW.owner_id AND e.address IS NOT NULL AND e.stopped_at IS NULL
     AND (decision.urgent OR e.digest <> 'off');
  RETURN NULL;
END;
$$;
CREATE TRIGGER notifications_mail AFTER INSERT ON notifications FOR EACH ROW
  WHEN (NEW.type <> 'webhook.test') EXECUTE FUNCTION purser_mail_enqueue();
