-- Pauses an agent because a rule that its owner signed says so; the caller has the agent's lock. The owner is notified once. The audit
-- and the notification have amounts as decimals.
CREATE FUNCTION purser_pause_by_rule(p_agent_id TEXT, p_rule TEXT, p_facts JSONB) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  UPDATE agents a SET status = 'paused', paused_by = p_rule, paused_at = clock_timestamp(), paused_facts = p_facts,
         updated_at = clock_timestamp()
   WHERE a.id = p_agent_id AND a.status = 'active';
  IF FOUND THEN
    INSERT INTO audit_notes (owner_id, agent_id, actor, action, before, after)
    SELECT a.owner_id, a.id, '0x0000000000000000000000000000000000000000', 'agent.paused_by_rule',
           '{"status": "active"}'::jsonb, jsonb_build_object('status', 'paused', 'rule', p_rule) || (
             SELECT jsonb_object_agg(f.key, CASE WHEN f.key IN ('usualDay', 'rateSum', 'jumpPrice', 'priceBefore')
                                                 THEN purser_usdc(f.value::numeric) ELSE f.value END)
               FROM jsonb_each_text(p_facts) f)
      FROM agents a WHERE a.id = p_agent_id;
  END IF;
END;
$$;
