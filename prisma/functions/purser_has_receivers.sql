-- Whether an owner has any receiver of notifications. Checked before the notification of a payment as usual is built, since
-- every payment passes here; purser_notify checks again for the type.
CREATE FUNCTION purser_has_receivers(p_owner_id TEXT) RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM webhooks w WHERE w.owner_id = p_owner_id AND w.status = 'active')
      OR EXISTS (SELECT 1 FROM email_addresses e WHERE e.owner_id = p_owner_id AND e.address IS NOT NULL);
$$;
