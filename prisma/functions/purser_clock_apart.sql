-- Whether the database's clock and the newest block's time differ too much to sign: one of them has jumped, or the chain stands
-- still. `validBefore` counts from the earlier of the two, so an old block would leave the authorization less than six seconds,
-- and the seller would refuse it. A block of 30 seconds is never too old. Without a block's time there is nothing to compare.
CREATE FUNCTION purser_clock_apart(p_head_time BIGINT, p_valid_seconds INTEGER DEFAULT 120)
RETURNS BOOLEAN LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(
    age > GREATEST(30, LEAST(p_valid_seconds, 120) - 6) OR age < -120, FALSE)
  FROM (SELECT extract(epoch FROM clock_timestamp()) - p_head_time AS age) head;
$$;
