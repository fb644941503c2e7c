-- When a payment is so many hours old. Rounded up to the millisecond: who comes back at an answer rounded
-- down would be refused by the microsecond.
CREATE FUNCTION purser_leaves_window_at(p_created_at TIMESTAMPTZ, p_hours INTEGER)
RETURNS TIMESTAMPTZ LANGUAGE sql STABLE AS $$
  SELECT date_trunc('milliseconds', p_created_at + p_hours * interval '1 hour' + interval '999 microseconds');
$$;
