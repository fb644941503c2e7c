-- The part of a day in which a bucket with a daily budget regains a cost: zero where there is no limit. One expression that
-- uses each argument once, so that Postgres inlines it into the calling statement.
CREATE FUNCTION purser_gas_refill(p_cost NUMERIC, p_per_day NUMERIC) RETURNS INTERVAL LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(least(p_cost / greatest(coalesce(p_per_day, 'Infinity'), 1), 3650), -3650)::float8 * interval '24 hours';
$$;
