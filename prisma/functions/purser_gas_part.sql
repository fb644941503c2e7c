-- The part of a day in which a bucket of so much a day gains so much: none where there is no limit. One expression that names
-- each of its values once, so that Postgres puts it into the statement that asks.
CREATE FUNCTION purser_gas_part(p_cost NUMERIC, p_per_day NUMERIC) RETURNS INTERVAL LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(least(p_cost / greatest(coalesce(p_per_day, 'Infinity'), 1), 3650), -3650)::float8 * interval '24 hours';
$$;
