-- Whether the database's clock and the newest block's time differ by more than the lifetime of an authorization: one of them
-- has jumped, or the chain stands still. Without a block's time there is nothing to compare.
CREATE FUNCTION purser_clock_apart(p_head_time BIGINT) RETURNS BOOLEAN LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(abs(extract(epoch FROM clock_timestamp()) - p_head_time) > 120, FALSE);
$$;
