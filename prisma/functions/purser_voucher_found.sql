-- The receiver has charged more than we knew, by its voucher or by the chain: the newest payment whose outcome was unknown was
-- charged the difference. The caller holds the lock on the channel, and decides the other payments (purser_vouchers_uncharged).
CREATE FUNCTION purser_voucher_found(p_channel channels, p_total NUMERIC) RETURNS VOID LANGUAGE sql AS $$
  UPDATE payments p
     SET status = 'settled', charged = LEAST(p_total - p_channel.charged, p.ceiling), settled_at = clock_timestamp(),
         final_at = clock_timestamp(), updated_at = clock_timestamp()
   WHERE p_total > p_channel.charged AND p.agent_id = p_channel.agent_id AND p.id = (
           SELECT u.id FROM payments u
            WHERE u.agent_id = p_channel.agent_id AND u.channel_id = p_channel.id AND u.ceiling IS NOT NULL AND u.outstanding
              AND u.voucher IS NOT NULL
            ORDER BY u.created_at DESC LIMIT 1);
$$;
