-- Listings that match a search, best first. Each of p_words is a word or a phrase, and p_related what else it may mean (a tsquery, or
-- ''). A word counts the more, the fewer listings have it, and by where it stands. Long texts count less. What matches less than
-- a quarter as well as the best is left out. Equally good ones are ordered by proof of sales. A copy is never above its original.
-- p_status chooses from the ranked ones, so that a list of the active ones has the order of the whole list.
-- docs/decisions/0041-search.md explains it.
CREATE FUNCTION purser_search(
  p_words TEXT[], p_related TEXT[], p_created_before TIMESTAMPTZ, p_owner_id TEXT, p_status TEXT, p_category TEXT, p_network TEXT,
  p_scheme TEXT, p_max_price NUMERIC, p_pay_to TEXT, p_extension TEXT)
RETURNS TABLE (id TEXT, place BIGINT) LANGUAGE plpgsql STABLE
  -- Planned for these words. To compare a listing with a search costs more than the planner thinks.
  SET plan_cache_mode = force_custom_plan SET enable_seqscan = off AS $$
DECLARE
  v_forms JSONB;
  v_mistyped TEXT[];
  v_queries TSQUERY[];
  v_query TSQUERY;
  v_ids TEXT[] := '{}';
BEGIN
  -- Each word as it is, as the start of a longer one, and what else it may mean.
  WITH form AS (
    SELECT w.at, w.word, f.factor, f.query
      FROM unnest(p_words, p_related) WITH ORDINALITY AS w (word, related, at),
           LATERAL (SELECT purser_search_query(w.word) AS query) stem,
           LATERAL (VALUES
             (1.0, stem.query || to_tsquery('simple', w.word)),
             (0.8, CASE WHEN w.word ~ '^[0-9]+$| |^..?$' THEN '' ELSE to_tsquery('simple', w.word || ':*') END),
             (0.7, (SELECT coalesce(string_agg(NULLIF(purser_search_query(r.phrase)::text, ''), ' | '), '')::tsquery
                      FROM unnest(string_to_array(w.related, ' | ')) AS r (phrase)))) AS f (factor, query)
     WHERE numnode(stem.query) > 0 AND numnode(f.query) > 0),
  term AS (
    SELECT f.at, f.word, string_agg(f.query::text, ' | ')::tsquery AS query FROM form f GROUP BY 1, 2)
  SELECT (SELECT jsonb_agg(f) FROM form f),
         -- One for each word, and one for all words together.
         (SELECT array_agg(t.query) || string_agg('(' || t.query::text || ')', ' & ') FILTER (WHERE t.word !~ ' ')::tsquery FROM term t)
    INTO v_forms, v_queries;
  -- A word that hardly any listing has may be mistyped.
  SELECT array_agg(DISTINCT n.form) INTO v_mistyped
    FROM unnest(p_words) AS w (word), LATERAL (SELECT purser_search_query(w.word) AS query) stem,
         LATERAL unnest(purser_near_words(w.word) || purser_near_words(btrim(stem.query::text, ''''))) AS n (form)
   WHERE w.word !~ '[0-9]| ' AND numnode(stem.query) > 0
     AND (SELECT count(*) FROM (SELECT FROM listings l WHERE l.document @@ (stem.query || to_tsquery('simple', w.word || ':*')) LIMIT 3) few) < 3;
  -- However many listings there are, only these are ranked: of each of those queries the ones with the most payers.
  FOREACH v_query IN ARRAY coalesce(v_queries, '{}') || CASE WHEN v_mistyped IS NULL THEN '{}' ELSE '{""}'::tsquery[] END LOOP
    v_ids := v_ids || ARRAY(
      SELECT l.id FROM listings l
       WHERE CASE WHEN v_query = '' THEN l.near_words && v_mistyped ELSE l.document @@ v_query END
         AND l.created_at <= p_created_before
         AND (p_owner_id IS NOT NULL OR l.status <> 'paused') AND (p_owner_id IS NULL OR l.owner_id = p_owner_id)
         AND (p_category IS NULL OR l.category = p_category)
         AND (p_network IS NULL OR l.network = p_network) AND (p_scheme IS NULL OR l.requirement ->> 'scheme' = p_scheme)
         AND (p_max_price IS NULL OR l.price <= p_max_price) AND (p_pay_to IS NULL OR l.pay_to = p_pay_to)
         AND (p_extension IS NULL OR coalesce(l.extensions -> p_extension, 'null') <> 'null')
       ORDER BY l.payers DESC, l.id LIMIT 200);
  END LOOP;
  RETURN QUERY
  WITH form AS MATERIALIZED (
    SELECT f.at, f.factor, f.query FROM jsonb_to_recordset(v_forms) AS f (at INT, factor FLOAT8, query TSQUERY)),
  found AS MATERIALIZED (
    SELECT l.id, l.similar_to, l.settlements, l.payers, l.uses, l.status, l.price, l.created_at, l.near_words && v_mistyped AS is_near,
           l.document || '' AS document, ts_filter(l.document, '{a}') AS name, ts_filter(l.document, '{b}') AS labels,
           ts_filter(l.document, '{c}') AS description
      FROM listings l WHERE l.id = ANY (v_ids)),
  matched AS (
    SELECT f.id, q.at, max(q.factor * CASE WHEN NOT f.document @@ q.query THEN 0
                                           WHEN f.name @@ q.query THEN 1 / (1 + 0.05 * length(f.name))
                                           WHEN f.labels @@ q.query THEN 0.8
                                           WHEN f.description @@ q.query THEN 0.7
                                           ELSE 0.6 END) AS weight
      FROM found f CROSS JOIN form q GROUP BY 1, 2
    UNION ALL
    SELECT f.id, 0, CASE WHEN f.is_near THEN 0.4 ELSE 0 END FROM found f WHERE f.is_near IS NOT NULL),
  rarity AS (
    SELECT m.at, ln(1 + (SELECT count(*) FROM found)::float8 / greatest(sum(m.weight), 1)) AS rare FROM matched m GROUP BY m.at),
  relevant AS (
    SELECT f.id, f.similar_to, sum(m.weight * r.rare) / (1 + greatest(0, length(f.document) - 40) / 40.0::float8) AS relevance
      FROM found f JOIN matched m USING (id) JOIN rarity r USING (at) GROUP BY f.id, f.similar_to, f.document),
  scored AS (
    SELECT r.id, least(r.relevance, 0.9 * original.relevance) AS relevance
      FROM relevant r LEFT JOIN relevant original ON original.id = r.similar_to),
  banded AS (
    SELECT s.id, round((10 * s.relevance / NULLIF(max(s.relevance) OVER (), 0))::numeric) AS band FROM scored s)
  SELECT f.id, row_number() OVER (
           ORDER BY b.band DESC, f.similar_to IS NOT NULL, f.status = 'active' DESC,
                    floor(log(2, 1 + greatest(f.settlements, least(f.uses, 10)))) DESC, f.payers DESC, f.price, f.created_at DESC, f.id)
    FROM banded b JOIN found f USING (id) WHERE b.band >= 3 AND (p_status IS NULL OR f.status = p_status);
END;
$$;
