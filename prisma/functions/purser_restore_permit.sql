-- The reservation was released unsigned: the same key may use the permit again.
CREATE FUNCTION purser_restore_permit(p_agent_id TEXT, p_payment_id TEXT) RETURNS VOID LANGUAGE sql AS $$
  UPDATE approvals g SET state = CASE WHEN EXISTS (
           SELECT 1 FROM approvals l WHERE l.agent_id = g.agent_id AND l.call = g.call AND l.state IN ('open', 'granted'))
         THEN 'expired' ELSE 'granted' END, payment_id = NULL
   WHERE g.payment_id = p_payment_id AND g.agent_id = p_agent_id AND g.state = 'used';
$$;
