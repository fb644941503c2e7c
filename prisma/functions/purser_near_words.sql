-- A word and its forms without one letter. A mistyped word has one of them in common with the right one. A short word has too many
-- others beside it.
CREATE FUNCTION purser_near_words(p_word TEXT) RETURNS TEXT[] LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(array_agg(DISTINCT CASE at.place WHEN 0 THEN p_word ELSE overlay(p_word PLACING '' FROM at.place FOR 1) END), '{}')
    FROM generate_series(0, length(p_word)) AS at (place)
   WHERE length(p_word) BETWEEN 5 AND 20;
$$;
