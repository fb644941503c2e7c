-- How many different refusals of an agent get a row of their own in an hour.
CREATE FUNCTION purser_refusal_rows() RETURNS INTEGER LANGUAGE sql IMMUTABLE AS $$
  SELECT 100;
$$;
