-- Whether anybody is to be told anything of this owner's: asked before what there is to tell is put together, since every
-- payment passes here. purser_notify asks again, for the one type.
CREATE FUNCTION purser_listens(p_owner_id TEXT) RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM webhooks w WHERE w.owner_id = p_owner_id AND w.status = 'active')
      OR EXISTS (SELECT 1 FROM email_addresses e WHERE e.owner_id = p_owner_id AND e.address IS NOT NULL);
$$;
