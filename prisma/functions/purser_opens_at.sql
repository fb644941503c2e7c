-- The next time at which an agent with these hours and days pays: a midnight, or the start of its hours.
CREATE FUNCTION purser_opens_at(p_hours TEXT, p_days TEXT, p_at TIMESTAMPTZ) RETURNS TIMESTAMPTZ LANGUAGE sql IMMUTABLE AS $$
  SELECT min(o.at) FROM (
    SELECT (date_trunc('day', p_at AT TIME ZONE 'UTC') + d * interval '1 day' + s) AT TIME ZONE 'UTC' AS at
      FROM generate_series(0, 8) AS d,
           unnest(ARRAY[interval '0', COALESCE(left(p_hours, 5), '00:00')::interval]) AS s) o
   WHERE o.at > p_at AND purser_pays_at(p_hours, p_days, o.at);
$$;
