-- How many different refusals of an agent are kept in an hour, each on a row of its own.
CREATE FUNCTION purser_refusals_kept() RETURNS INTEGER LANGUAGE sql IMMUTABLE AS $$
  SELECT 100;
$$;
