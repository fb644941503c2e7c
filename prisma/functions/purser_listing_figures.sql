-- Counts the sales of listings that were not counted for ten minutes, and marks copies. Returns how many were counted.
CREATE FUNCTION purser_listing_figures(p_most INT) RETURNS INT LANGUAGE plpgsql AS $$
DECLARE
  v_ids TEXT[];
BEGIN
  UPDATE listings SET name = name
   WHERE id IN (SELECT l.id FROM listings l WHERE l.document IS NULL LIMIT p_most FOR UPDATE SKIP LOCKED);
  SELECT coalesce(array_agg(due.id), '{}') INTO v_ids
    FROM (SELECT l.id FROM listings l WHERE l.figures_at < now() - interval '10 minutes'
           ORDER BY l.figures_at LIMIT p_most FOR UPDATE SKIP LOCKED) due;
  UPDATE listings l SET figures_at = now(), settlements = sold.settlements, payers = sold.payers
    FROM listings due, LATERAL (
      SELECT coalesce(sum(least(payer.times, 10)), 0) AS settlements, count(*) AS payers
        FROM (SELECT s.from_address, count(*) AS times
                -- A payment names its resource itself, so it counts only for the payee who got the money.
                FROM (SELECT s.* FROM settlements s WHERE s.to_address = due.pay_to AND s.created_at > now() - interval '30 days'
                       ORDER BY s.created_at DESC LIMIT 10000) s
               WHERE s.status = 'settled' AND s.kind IN ('x402', 'facilitated')
                 AND split_part(split_part(s.resource_url, '://', 2), '/', 1) = due.host
               GROUP BY s.from_address) payer) sold
   WHERE due.id = ANY (v_ids) AND l.id = due.id;
  PERFORM purser_listing_similar(v_ids);
  RETURN cardinality(v_ids);
END;
$$;
