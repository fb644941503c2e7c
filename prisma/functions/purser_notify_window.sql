-- Notifies the owner when a weekly or monthly limit is nearly used, and when it is used. Windows of 24 hours for all payees are those
-- of budgets.
CREATE FUNCTION purser_notify_window() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  PERFORM purser_notify_window_limit(NEW, FALSE);
  RETURN NULL;
END;
$$;
CREATE TRIGGER windows_notify_new AFTER INSERT ON spending_windows FOR EACH ROW
  WHEN (NEW.payee = '' AND NEW.hours IN (24, 168, 720)) EXECUTE FUNCTION purser_notify_window();
CREATE TRIGGER windows_notify AFTER UPDATE OF amount ON spending_windows FOR EACH ROW
  WHEN (NEW.payee = '' AND NEW.hours IN (24, 168, 720)) EXECUTE FUNCTION purser_notify_window();
