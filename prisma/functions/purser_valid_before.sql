-- The latest valid time for an authorization signed now: by the database's clock and by the newest block's time, whichever is
-- earlier, so that a jump of one of them cannot extend it.
CREATE FUNCTION purser_valid_before(p_valid_seconds INTEGER, p_head_time BIGINT)
RETURNS BIGINT LANGUAGE sql VOLATILE AS $$
  SELECT LEAST(floor(extract(epoch FROM clock_timestamp()))::bigint, p_head_time) + p_valid_seconds;
$$;
