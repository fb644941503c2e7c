-- A voucher left little in its channel. The mark is compared in the trigger's condition, so other vouchers cost nothing.
CREATE FUNCTION purser_channel_low() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  PERFORM purser_notify_channel_low(NEW, NULL);
  RETURN NULL;
END;
$$;
CREATE TRIGGER channels_low AFTER UPDATE OF ceiling ON channels FOR EACH ROW
  WHEN (NEW.ceiling > NEW.low_at) EXECUTE FUNCTION purser_channel_low();
