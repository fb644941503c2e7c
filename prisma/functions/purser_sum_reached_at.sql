-- The time of the counted payment at which the payments after p_after, to one payee or to all (''), add up to p_sum, in
-- 'amount' or in number of 'payments'; null if they never do. It climbs from payments to sums and to sums of sums as soon as
-- one begins, and descends into the one in which p_sum is reached.
CREATE FUNCTION purser_sum_reached_at(
  p_agent_id TEXT, p_payee TEXT, p_measure TEXT, p_after TIMESTAMPTZ, p_sum NUMERIC
) RETURNS TIMESTAMPTZ LANGUAGE plpgsql STABLE AS $$
DECLARE
  -- Level 0 is the payments themselves.
  v_level INTEGER := 0;
  v_climbing BOOLEAN := true;
  v_at TIMESTAMPTZ := p_after;
  v_bound TIMESTAMPTZ := 'infinity';
  v_left NUMERIC := p_sum;
  v_hit_after TIMESTAMPTZ;
  v_hit_to TIMESTAMPTZ;
  v_passed NUMERIC;
BEGIN
  LOOP
    IF v_climbing THEN
      SELECT s.after_at INTO v_bound FROM payment_sums s
       WHERE s.agent_id = p_agent_id AND s.payee = '' AND s.level = v_level + 1 AND s.after_at >= v_at
       ORDER BY s.after_at LIMIT 1;
      v_climbing := FOUND;
      v_bound := COALESCE(v_bound, 'infinity');
    END IF;
    IF v_level = 0 THEN
      SELECT walk.created_at INTO v_hit_to FROM (
        SELECT p.created_at, p.id, sum(CASE p_measure WHEN 'payments' THEN 1 ELSE p.amount END)
                 OVER (ORDER BY p.created_at, p.id) AS total
          FROM purser_counted_payments(p_agent_id, v_at, v_bound) p WHERE p_payee = '' OR p.party = p_payee) walk
       WHERE walk.total >= v_left ORDER BY walk.created_at, walk.id LIMIT 1;
      IF FOUND OR NOT v_climbing THEN
        RETURN v_hit_to;
      END IF;
      v_left := v_left - (SELECT CASE p_measure WHEN 'payments' THEN c.payments ELSE c.amount END
                            FROM purser_counted_sum(p_agent_id, p_payee, v_at, v_bound) c);
      v_at := v_bound;
      v_level := 1;
      CONTINUE;
    END IF;
    SELECT walk.after_at, walk.to_at, walk.total - walk.part INTO v_hit_after, v_hit_to, v_passed FROM (
      SELECT s.after_at, s.to_at, each.part, sum(each.part) OVER (ORDER BY s.after_at) AS total
        FROM payment_sums s, LATERAL (
               SELECT CASE p_measure WHEN 'payments' THEN s.payments ELSE s.amount END AS part) each
       WHERE s.agent_id = p_agent_id AND s.payee = p_payee AND s.level = v_level
         AND s.after_at >= v_at AND s.after_at < v_bound) walk
     WHERE walk.total >= v_left ORDER BY walk.after_at LIMIT 1;
    IF FOUND THEN
      v_climbing := false;
      v_left := v_left - v_passed;
      v_at := v_hit_after;
      v_bound := v_hit_to;
      v_level := v_level - 1;
      CONTINUE;
    END IF;
    SELECT COALESCE(sum(CASE p_measure WHEN 'payments' THEN s.payments ELSE s.amount END)
                      FILTER (WHERE s.payee = p_payee), 0),
           max(s.to_at) FILTER (WHERE s.payee = '') INTO v_passed, v_hit_to
      FROM payment_sums s
     WHERE s.agent_id = p_agent_id AND s.payee IN ('', p_payee) AND s.level = v_level
       AND s.after_at >= v_at AND s.after_at < v_bound;
    v_left := v_left - v_passed;
    v_at := COALESCE(v_hit_to, v_at);
    v_level := v_level + CASE WHEN v_climbing THEN 1 ELSE -1 END;
  END LOOP;
END;
$$;
