-- Puts a notification on the list of each of its owner's devices that wants the type, in the same transaction. A device that fails
-- is tried again when its time comes.
CREATE FUNCTION purser_push_enqueue() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO push_waiting (device_id, owner_id, notification_id, due_at)
  SELECT d.id, d.owner_id, NEW.id, greatest(d.retry_at, clock_timestamp())
    FROM push_devices d
   WHERE d.owner_id = NEW.owner_id AND NEW.type = ANY (d.types) AND purser_is_urgent(NEW);
  RETURN NULL;
END;
$$;
-- Payments as usual are too many, and are never sent to a device.
CREATE TRIGGER notifications_push AFTER INSERT ON notifications FOR EACH ROW
  WHEN (NEW.type NOT IN ('payment.settled', 'settlement.settled', 'webhook.test')) EXECUTE FUNCTION purser_push_enqueue();
