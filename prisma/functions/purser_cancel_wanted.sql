-- Marks an agent's own x402 authorization that was not submitted for cancellation on chain. A cancellation costs gas, so for a
-- payee that caused several already the authorization is left to expire. Returns lapse, cancel, or null where neither applies.
CREATE FUNCTION purser_cancel_wanted(
  p_from TEXT, p_chain_id BIGINT, p_asset TEXT, p_nonce TEXT, p_signature BYTEA
) RETURNS TABLE (decision TEXT, valid_before NUMERIC) LANGUAGE plpgsql AS $$
DECLARE
  wanted settlements%ROWTYPE;
BEGIN
  SELECT * INTO wanted FROM settlements s
   WHERE s.from_address = p_from AND s.chain_id = p_chain_id AND s.asset = p_asset AND s.nonce = p_nonce
     AND s.status = 'queued' AND s.agent_id IS NOT NULL FOR UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  valid_before := wanted.valid_before;
  decision := 'cancel';
  IF wanted.cancel_signature IS NULL AND purser_gas_take(p_chain_id, 'cancels:' || (
       SELECT a.owner_id FROM agents a WHERE a.id = wanted.agent_id) || ':' || wanted.to_address, 1) IS NOT NULL THEN
    decision := 'lapse';
  ELSE
    UPDATE settlements s
       SET cancel_signature = p_signature, next_attempt_at = '-infinity', updated_at = clock_timestamp()
     WHERE s.from_address = p_from AND s.chain_id = p_chain_id AND s.asset = p_asset AND s.nonce = p_nonce;
  END IF;
  RETURN NEXT;
END;
$$;
