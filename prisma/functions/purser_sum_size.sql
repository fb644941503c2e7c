-- How many payments a sum of level 1 holds, and how many of those a sum of level 2 holds.
CREATE FUNCTION purser_sum_size() RETURNS INTEGER LANGUAGE sql IMMUTABLE AS $$
  SELECT 128;
$$;
