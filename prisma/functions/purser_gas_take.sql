-- Reserves p_cost on one account if its bucket holds that much, under the row's lock, so that all replicas share it exactly.
-- With p_dry_run it only checks. Returns null when it fits, else when it will ('infinity': never).
CREATE FUNCTION purser_gas_take(p_chain_id BIGINT, p_account TEXT, p_cost NUMERIC, p_dry_run BOOLEAN DEFAULT FALSE)
RETURNS TIMESTAMPTZ LANGUAGE plpgsql AS $$
DECLARE
  step CONSTANT INTERVAL := purser_gas_step(p_chain_id, p_account, p_cost);
  full_from TIMESTAMPTZ;
BEGIN
  IF step > interval '24 hours' THEN
    RETURN 'infinity';
  END IF;
  IF p_dry_run THEN
    SELECT g.full_at INTO full_from FROM gas_accounts g WHERE g.chain_id = p_chain_id AND g.account = p_account;
    RETURN CASE WHEN full_from + step > clock_timestamp() + interval '24 hours'
      THEN full_from + step - interval '24 hours' END;
  END IF;
  INSERT INTO gas_accounts AS g (chain_id, account, full_at, held)
  VALUES (p_chain_id, p_account, clock_timestamp() + step, p_cost)
  ON CONFLICT (chain_id, account) DO UPDATE
     SET full_at = greatest(g.full_at, clock_timestamp()) + step, held = g.held + p_cost, used_on = EXCLUDED.used_on
   WHERE greatest(g.full_at, clock_timestamp()) + step <= clock_timestamp() + interval '24 hours';
  IF FOUND THEN
    RETURN NULL;
  END IF;
  SELECT g.full_at INTO full_from FROM gas_accounts g WHERE g.chain_id = p_chain_id AND g.account = p_account;
  RETURN full_from + step - interval '24 hours';
END;
$$;
