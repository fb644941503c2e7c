-- The entry of an owner's denied payees that refuses a payment; null if none does. A site with a dot at its end is the same
-- host, and an entry without a port denies every port of its host.
CREATE FUNCTION purser_denied(p_owner_id TEXT, p_payee TEXT, p_site TEXT)
RETURNS TABLE (entry TEXT) LANGUAGE sql STABLE AS $$
  SELECT min(d.entry) FROM denied_payees d
   WHERE d.owner_id = p_owner_id
     AND d.entry IN (p_payee, regexp_replace(p_site, '\.(?=(:[0-9]+)?$)', ''), regexp_replace(p_site, '\.?(:[0-9]+)?$', ''));
$$;
