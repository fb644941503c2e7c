-- Uses up an owner's permit exactly once: in the transaction that reserves. It is returned only with a reservation that was
-- never signed.
CREATE FUNCTION purser_use_permit(p_id TEXT, p_payment_id TEXT) RETURNS VOID LANGUAGE sql AS $$
  UPDATE approvals SET state = 'used', payment_id = p_payment_id WHERE id = p_id AND state = 'granted';
$$;
