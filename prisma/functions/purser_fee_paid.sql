-- Credits a payment of fees that is on the chain and in no row, after a restore of an older database. An operator calls it, with the
-- key of the transfer's authorization: the same transfer is credited once. Returns whether it was credited now.
CREATE FUNCTION purser_fee_paid(
  p_chain_id BIGINT, p_account TEXT, p_from TEXT, p_asset TEXT, p_nonce TEXT, p_amount NUMERIC
) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO fee_entries (from_address, chain_id, asset, nonce, id, kind, account, amount, value)
  VALUES (lower(p_from), p_chain_id, lower(p_asset), lower(p_nonce), 'fee_' || substr(lower(p_nonce), 3, 24), 'payment',
    lower(p_account), p_amount, p_amount)
  ON CONFLICT (from_address, chain_id, asset, nonce) DO NOTHING;
  IF NOT FOUND THEN
    RETURN FALSE;
  END IF;
  INSERT INTO fee_accounts AS a (chain_id, account, charged, paid) VALUES (p_chain_id, lower(p_account), 0, p_amount)
  ON CONFLICT (chain_id, account) DO UPDATE SET paid = a.paid + EXCLUDED.paid, tx = EXCLUDED.tx;
  RETURN TRUE;
END;
$$;
