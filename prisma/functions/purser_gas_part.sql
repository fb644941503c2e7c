-- The part of a day in which a bucket of so much a day gains so much; nothing where there is no limit. One expression, so that
-- Postgres puts it into the statement that asks.
CREATE FUNCTION purser_gas_part(p_cost NUMERIC, p_per_day NUMERIC) RETURNS INTERVAL LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(greatest(least(p_cost / greatest(p_per_day, 1), 3650), -3650)::float8 * interval '24 hours', interval '0');
$$;
