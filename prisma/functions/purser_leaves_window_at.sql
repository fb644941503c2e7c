-- When a payment leaves a window of so many hours. Rounded up to the millisecond: a caller that returns at a time rounded down
-- would be refused because of some microseconds.
CREATE FUNCTION purser_leaves_window_at(p_created_at TIMESTAMPTZ, p_hours INTEGER)
RETURNS TIMESTAMPTZ LANGUAGE sql STABLE AS $$
  SELECT date_trunc('milliseconds', p_created_at + p_hours * interval '1 hour' + interval '999 microseconds');
$$;
