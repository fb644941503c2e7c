-- The words of a text, without accents and punctuation, separated by spaces. search-words.ts does the same with a query.
CREATE FUNCTION purser_search_words(p_text TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
  SELECT lower(regexp_replace(regexp_replace(normalize(p_text, NFKD), U&'[\0300-\036F]', '', 'g'), '[^[:alnum:]]+', ' ', 'g'));
$$;
