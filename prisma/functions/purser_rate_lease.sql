-- Takes up to the requested number of requests from each rate-limit bucket, and returns how many it got and when the bucket is
-- full again. A bucket holds one minute's worth and refills evenly. Buckets are locked in the order of their keys, so that two
-- callers cannot deadlock.
CREATE FUNCTION purser_rate_lease(p_keys TEXT[], p_wanted INTEGER[], p_per_minute INTEGER[])
RETURNS TABLE (key TEXT, granted INTEGER, full_in_ms DOUBLE PRECISION) LANGUAGE plpgsql AS $$
DECLARE
  item RECORD;
  step INTERVAL;
  now_at TIMESTAMPTZ;
  full_from TIMESTAMPTZ;
BEGIN
  FOR item IN
    SELECT k.key, k.wanted, k.per_minute
      FROM unnest(p_keys, p_wanted, p_per_minute) AS k (key, wanted, per_minute) ORDER BY k.key
  LOOP
    step := interval '1 minute' / item.per_minute;
    INSERT INTO rate_buckets AS b (key, full_at, kept_until)
    VALUES (item.key, clock_timestamp(), date_trunc('hour', clock_timestamp()) + interval '2 hours')
    ON CONFLICT ON CONSTRAINT rate_buckets_pkey
      DO UPDATE SET full_at = greatest(b.full_at, clock_timestamp())
    RETURNING b.full_at INTO full_from;
    now_at := clock_timestamp();
    key := item.key;
    granted := greatest(0, least(item.wanted,
      floor(extract(epoch FROM now_at + interval '1 minute' - full_from) / extract(epoch FROM step))::INTEGER));
    full_in_ms := extract(epoch FROM full_from + granted * step - now_at) * 1000;
    IF granted > 0 THEN
      UPDATE rate_buckets b
         SET full_at = full_from + granted * step,
             kept_until = date_trunc('hour', now_at) + interval '2 hours'
       WHERE b.key = item.key;
    END IF;
    RETURN NEXT;
  END LOOP;
END
$$;
