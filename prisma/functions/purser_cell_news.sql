-- Writes what another cell reported, and where to go on reading there, in one transaction. Changes nothing and returns false if
-- another replica has read on from the same place.
CREATE FUNCTION purser_cell_news(p_cell TEXT, p_fees_after TEXT, p_notices_after TEXT, p_news JSONB)
RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
  UPDATE cell_news c
     SET fees_after = p_news->>'feesAfter', notices_after = p_news->>'noticesAfter',
         -- A cell of the release before does not say how far behind this is.
         read_at = clock_timestamp() - make_interval(secs => COALESCE((p_news->>'behindSeconds')::float8, 0))
   WHERE c.cell = p_cell AND c.fees_after IS NOT DISTINCT FROM p_fees_after
     AND c.notices_after IS NOT DISTINCT FROM p_notices_after;
  IF NOT FOUND THEN
    RETURN FALSE;
  END IF;
  INSERT INTO cell_fee_accounts (chain_id, account, cell, charged, paid)
  SELECT f."chainId", f.account, p_cell, f.charged, f.paid
    FROM jsonb_to_recordset(p_news->'fees') AS f ("chainId" BIGINT, account TEXT, charged NUMERIC, paid NUMERIC)
  ON CONFLICT (chain_id, account, cell) DO UPDATE SET charged = EXCLUDED.charged, paid = EXCLUDED.paid;
  PERFORM purser_notify(o.id, n.notice->>'type', NULL, n.notice->>'subjectId', n.notice->'data')
     FROM jsonb_array_elements(p_news->'notices') WITH ORDINALITY AS n (notice, place)
     JOIN owners o ON o.address = n.notice->>'address' AND o.chain_id IN (0, (n.notice->>'chainId')::bigint) AND o.moved_at IS NULL
    ORDER BY n.place;
  RETURN TRUE;
END;
$$;
