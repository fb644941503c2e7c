-- Marks copies with their originals: the same description, one name begins with the other, another host and payee, and fewer payers.
CREATE FUNCTION purser_listing_similar(p_ids TEXT[]) RETURNS VOID LANGUAGE sql AS $$
  UPDATE listings l SET similar_to = original.id
    FROM listings due LEFT JOIN LATERAL (
      SELECT o.id FROM listings o
       WHERE o.text_key = due.text_key AND o.host <> due.host AND o.pay_to <> due.pay_to AND o.payers > due.payers AND o.status = 'active'
         AND (starts_with(lower(due.name), lower(o.name)) OR starts_with(lower(o.name), lower(due.name)))
       ORDER BY o.payers DESC, o.created_at, o.id LIMIT 1) original ON true
   WHERE due.id = ANY (p_ids) AND l.id = due.id AND l.similar_to IS DISTINCT FROM original.id;
$$;
