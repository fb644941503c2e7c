-- Notifies the owner of a listing whose endpoint failed or asked for other terms.
CREATE FUNCTION purser_notify_listing() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  PERFORM purser_notify(NEW.owner_id, 'listing.flagged', NULL, NEW.id, jsonb_build_object(
    'listingId', NEW.id, 'flag', NEW.flag, 'status', NEW.status, 'network', NEW.network,
    'thirdParty', jsonb_strip_nulls(jsonb_build_object('name', left(NEW.name, 200), 'url', left(NEW.url, 2000),
      'reason', left(NEW.status_reason, 500)))));
  RETURN NULL;
END;
$$;
CREATE TRIGGER listings_notify AFTER UPDATE OF flag ON listings FOR EACH ROW
  WHEN (NEW.owner_id IS NOT NULL AND NEW.flag IS NOT NULL AND OLD.flag IS DISTINCT FROM NEW.flag)
  EXECUTE FUNCTION purser_notify_listing();
