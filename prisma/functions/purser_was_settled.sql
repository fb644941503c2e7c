-- Whether the last outcome reported for this settlement was `settled`, before a reorganisation removed it.
CREATE FUNCTION purser_was_settled(s settlements) RETURNS BOOLEAN LANGUAGE sql STABLE AS $$
  SELECT s.corrected_at IS NOT NULL AND coalesce((
    SELECT c.kind = 'settled_to_open' FROM settlement_corrections c
     WHERE c.from_address = s.from_address AND c.chain_id = s.chain_id AND c.asset = s.asset AND c.nonce = s.nonce
     ORDER BY c.seq DESC LIMIT 1), FALSE);
$$;
