-- The owner's permit for exactly this call: the same request with the same key, to the same payee at the same site, on the same
-- chain and asset, for at most the signed amount, while it is valid. With p_hold its row is locked for the caller that uses it.
CREATE FUNCTION purser_permit(
  p_agent_id TEXT, p_call BYTEA, p_key TEXT, p_chain_id BIGINT, p_asset TEXT, p_payee TEXT, p_site TEXT, p_amount NUMERIC,
  p_until BIGINT, p_hold BOOLEAN
) RETURNS SETOF approvals LANGUAGE plpgsql AS $$
DECLARE
  v_permit approvals%ROWTYPE;
BEGIN
  SELECT * INTO v_permit FROM approvals g
   WHERE g.agent_id = p_agent_id AND g.call = p_call AND g.state = 'granted';
  IF FOUND AND p_hold THEN
    -- Waits for a decision that is being made now, and reads its result.
    SELECT * INTO v_permit FROM approvals g WHERE g.id = v_permit.id AND g.state = 'granted' FOR UPDATE;
  END IF;
  IF v_permit.key = p_key AND v_permit.chain_id = p_chain_id AND v_permit.asset = p_asset AND v_permit.payee = p_payee
     AND v_permit.site = p_site AND v_permit.amount >= p_amount AND v_permit.permit_until >= p_until THEN
    RETURN NEXT v_permit;
  END IF;
END;
$$;
