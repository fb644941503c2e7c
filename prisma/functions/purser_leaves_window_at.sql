-- When a payment is 24 hours old. Rounded up to the millisecond: who comes back at an answer rounded
-- down would be refused by the microsecond.
CREATE FUNCTION purser_leaves_window_at(p_created_at TIMESTAMPTZ) RETURNS TIMESTAMPTZ LANGUAGE sql STABLE AS $$
  SELECT date_trunc('milliseconds', p_created_at + interval '24 hours' + interval '999 microseconds');
$$;
