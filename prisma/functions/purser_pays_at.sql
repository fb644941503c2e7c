-- Whether an agent with these hours and days pays at that time, in UTC. Hours may cross midnight; the end does not count. The same
-- as `refuses` of HOURS and DAYS in packages/rules; a test compares them.
CREATE FUNCTION purser_pays_at(p_hours TEXT, p_days TEXT, p_at TIMESTAMPTZ) RETURNS BOOLEAN LANGUAGE sql IMMUTABLE AS $$
  SELECT (p_hours IS NULL
          OR CASE WHEN left(p_hours, 5) < right(p_hours, 5) THEN c.minute >= left(p_hours, 5) AND c.minute < right(p_hours, 5)
                  ELSE c.minute >= left(p_hours, 5) OR c.minute < right(p_hours, 5) END)
     AND (p_days IS NULL OR strpos(p_days, (ARRAY['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'])[c.day]) > 0)
    FROM (SELECT lpad((extract(hour FROM u.at))::int::text, 2, '0') || ':' || lpad((extract(minute FROM u.at))::int::text, 2, '0') AS minute,
                 extract(isodow FROM u.at)::int AS day
            FROM (SELECT p_at AT TIME ZONE 'UTC' AS at) u) c;
$$;
