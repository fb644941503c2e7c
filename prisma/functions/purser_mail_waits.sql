-- A notification waits for its owner's next mail, from the same transaction on. Two kinds are urgent only at their worst:
-- a limit when it is reached (80 % is told as well), a sign-in from where no session of the owner's came from.
CREATE FUNCTION purser_mail_waits() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO mail_waiting (owner_id, notification_id, urgent)
  SELECT e.owner_id, NEW.id, told.urgent
    FROM email_addresses e,
         LATERAL (SELECT NEW.type = ANY (e.urgent) AND CASE NEW.type
           WHEN 'agent.limit_reached' THEN (NEW.data ->> 'percent')::numeric >= 100
           WHEN 'session.created' THEN NOT EXISTS (
             SELECT 1 FROM sessions s
              WHERE s.owner_id = NEW.owner_id AND s.id <> NEW.subject_id AND s.ip = NEW.data ->> 'ip'
                AND s.user_agent = NEW.data -> 'thirdParty' ->> 'userAgent')
           ELSE TRUE END AS urgent) AS told
   WHERE e.owner_id = NEW.owner_id AND e.address IS NOT NULL AND e.stopped_at IS NULL
     AND (told.urgent OR e.digest <> 'off');
  RETURN NULL;
END;
$$;
CREATE TRIGGER notifications_mail AFTER INSERT ON notifications FOR EACH ROW
  WHEN (NEW.type <> 'webhook.test') EXECUTE FUNCTION purser_mail_waits();
