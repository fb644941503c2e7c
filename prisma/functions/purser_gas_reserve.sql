-- Decides whether an owner's agent, or a withdrawal of the owner, may use this much gas, and whether the payment is worth its
-- gas. The owner's account is charged here. The share of all agents, or of all withdrawals, is only checked here, and charged
-- for many payments at once when they are accepted: a single row that every payment locks would limit the whole service.
-- Returns the refusal code, if any, and the facts of the rules `floor` and `gas` (server/plugins/guardrails/rules).
CREATE FUNCTION purser_gas_reserve(
  p_chain_id BIGINT, p_share TEXT, p_account TEXT, p_hold NUMERIC, p_amount NUMERIC, p_floor NUMERIC, p_dry_run BOOLEAN
) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
  short_of TEXT := p_share;
  fits_at TIMESTAMPTZ := purser_gas_take(p_chain_id, p_share, p_hold, TRUE);
BEGIN
  IF p_amount < p_floor THEN
    RETURN jsonb_build_object('code', 'amount_below_floor', 'floor', p_floor::text);
  END IF;
  IF fits_at IS NULL THEN
    short_of := p_account;
    fits_at := purser_gas_take(p_chain_id, p_account, p_hold, p_dry_run);
  END IF;
  IF fits_at IS NULL THEN
    RETURN jsonb_build_object('floor', p_floor::text, 'gasHold', p_hold::text);
  END IF;
  RETURN (
    SELECT jsonb_build_object('code', 'gas_budget_exhausted', 'floor', p_floor::text, 'gasShort', split_part(short_of, ':', 1), 'gasLimit', l.per_day::text,
             'gasHold', p_hold::text, 'gasHeld', coalesce(g.held, 0)::text,
             'gasLeft', greatest(floor(l.per_day * (1 - extract(epoch FROM
               greatest(g.full_at - clock_timestamp(), interval '0')) / 86400)), 0)::text,
             -- Null for 'infinity'.
             'gasAvailableAt', to_char(fits_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
      FROM gas_limits l LEFT JOIN gas_accounts g ON g.chain_id = l.chain_id AND g.account = short_of
     WHERE l.chain_id = p_chain_id AND l.name = split_part(short_of, ':', 1));
END;
$$;
