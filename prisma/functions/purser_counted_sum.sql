-- The counted payments in (p_after, p_to], to one payee or to all (''), for a period of any length: whole sums where they
-- exist, and single payments at both ends. The sums of all payees mark where a period begins and ends; a payee has a row only
-- in the periods in which it was paid. p_agent_id may be a budget's id; its payees are the wallets that paid.
CREATE FUNCTION purser_counted_sum(
  p_agent_id TEXT, p_payee TEXT, p_after TIMESTAMPTZ, p_to TIMESTAMPTZ, OUT amount NUMERIC, OUT payments BIGINT
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  -- Whole sums of this level cover (v_from, v_until]; the level below covers the rest on both sides.
  v_from TIMESTAMPTZ;
  v_until TIMESTAMPTZ;
  v_outer_from TIMESTAMPTZ;
  v_outer_until TIMESTAMPTZ;
BEGIN
  SELECT s.after_at INTO v_from FROM payment_sums s
   WHERE s.agent_id = p_agent_id AND s.payee = '' AND s.level = 1 AND s.after_at >= p_after AND s.after_at < p_to
   ORDER BY s.after_at LIMIT 1;
  IF v_from IS NOT NULL THEN
    SELECT s.to_at INTO v_until FROM payment_sums s
     WHERE s.agent_id = p_agent_id AND s.payee = '' AND s.level = 1 AND s.after_at < p_to AND s.to_at <= p_to
     ORDER BY s.after_at DESC LIMIT 1;
  END IF;
  IF v_until IS NULL OR v_from >= v_until THEN
    SELECT COALESCE(sum(p.amount), 0), count(*) INTO amount, payments
      FROM purser_counted_payments(p_agent_id, p_after, p_to) p WHERE p_payee = '' OR p.party = p_payee;
    RETURN;
  END IF;
  v_outer_from := v_from;
  v_outer_until := v_until;
  SELECT s.after_at INTO v_from FROM payment_sums s
   WHERE s.agent_id = p_agent_id AND s.payee = '' AND s.level = 2 AND s.after_at >= v_outer_from
   ORDER BY s.after_at LIMIT 1;
  SELECT s.to_at INTO v_until FROM payment_sums s
   WHERE s.agent_id = p_agent_id AND s.payee = '' AND s.level = 2 AND s.after_at < v_outer_until
     AND s.to_at <= v_outer_until
   ORDER BY s.after_at DESC LIMIT 1;
  IF v_from IS NULL OR v_until IS NULL OR v_from >= v_until THEN
    v_from := v_outer_until;
    v_until := v_outer_until;
  END IF;
  SELECT COALESCE(sum(part.amount), 0), COALESCE(sum(part.payments), 0) INTO amount, payments FROM (
    SELECT p.amount, 1 AS payments FROM purser_counted_payments(p_agent_id, p_after, v_outer_from) p
     WHERE p_payee = '' OR p.party = p_payee
    UNION ALL
    SELECT p.amount, 1 FROM purser_counted_payments(p_agent_id, v_outer_until, p_to) p
     WHERE p_payee = '' OR p.party = p_payee
    UNION ALL
    SELECT s.amount, s.payments FROM payment_sums s
     WHERE s.agent_id = p_agent_id AND s.payee = p_payee AND s.level = 1
       AND s.after_at >= v_outer_from AND s.after_at < v_from
    UNION ALL
    SELECT s.amount, s.payments FROM payment_sums s
     WHERE s.agent_id = p_agent_id AND s.payee = p_payee AND s.level = 2
       AND s.after_at >= v_from AND s.after_at < v_until
    UNION ALL
    SELECT s.amount, s.payments FROM payment_sums s
     WHERE s.agent_id = p_agent_id AND s.payee = p_payee AND s.level = 1
       AND s.after_at >= v_until AND s.after_at < v_outer_until) part;
END;
$$;
