-- Whoever set a limit for a week or a month is told when it is nearly used, and when it is.
CREATE FUNCTION purser_tell_window() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  PERFORM purser_tell_window_of(NEW, FALSE);
  RETURN NULL;
END;
$$;
CREATE TRIGGER windows_told_new AFTER INSERT ON spending_windows FOR EACH ROW
  WHEN (NEW.payee = '' AND NEW.hours IN (168, 720)) EXECUTE FUNCTION purser_tell_window();
CREATE TRIGGER windows_told AFTER UPDATE OF amount ON spending_windows FOR EACH ROW
  WHEN (NEW.payee = '' AND NEW.hours IN (168, 720)) EXECUTE FUNCTION purser_tell_window();
