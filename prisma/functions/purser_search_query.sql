-- A word or a phrase ("hay <-> fever") as a query for its stem; empty for words like "the". The stem of a short word is often another
-- word, and a phrase keeps its small words.
CREATE FUNCTION purser_search_query(p_phrase TEXT) RETURNS TSQUERY LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN numnode(q.stems) = 0 THEN q.stems
              WHEN length(p_phrase) <= 3 OR numnode(q.stems) < numnode(q.plain) THEN q.plain
              ELSE q.stems END
    FROM (SELECT to_tsquery('english', p_phrase) AS stems, to_tsquery('simple', p_phrase) AS plain) q;
$$;
