-- The receiver's total shows that it did not charge the payments whose outcome was unknown. Their ceiling stays signed. Not
-- the one that uses the channel now: the total is from before its end.
CREATE FUNCTION purser_vouchers_uncharged(p_agent_id TEXT, p_channel_id TEXT)
RETURNS VOID LANGUAGE sql AS $$
  UPDATE payments p
     SET status = 'settled', charged = 0, settled_at = clock_timestamp(), final_at = clock_timestamp(),
         failure_code = 'not_charged', updated_at = clock_timestamp()
   WHERE p.agent_id = p_agent_id AND p.channel_id = p_channel_id AND p.ceiling IS NOT NULL AND p.outstanding
     AND p.voucher IS NOT NULL
     AND NOT EXISTS (SELECT 1 FROM channels c
                      WHERE c.agent_id = p_agent_id AND c.id = p_channel_id AND c.busy_payment = p.id);
$$;
