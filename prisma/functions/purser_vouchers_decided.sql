-- A receiver's total, by its voucher or by the chain, decides the payments whose outcome was unknown. p_excess: what the receiver
-- has charged beyond the charges that we know.
-- Nothing: it charged none of them. Otherwise it charged the only one that it could have charged. If there are several, the total
-- shows only their sum: none of them ends as unpaid, and none as paid. A payment that it refused is one of them only if nothing
-- else explains the total.
-- Their ceiling stays signed. Not the payment that uses the channel now, which ends by itself: the total may be from before it.
-- The caller holds the lock on the channel. p_channel: as it was before the total was known.
CREATE FUNCTION purser_vouchers_decided(p_channel channels, p_excess NUMERIC) RETURNS VOID LANGUAGE sql AS $$
  WITH open AS (
    SELECT u.id, p_excess > 0 AND u.ceiling > p_channel.charged AS is_possible,
           u.failure_code IS NOT DISTINCT FROM 'seller_refused' AS is_refused
      FROM payments u
     WHERE u.agent_id = p_channel.agent_id AND u.channel_id = p_channel.id AND u.ceiling IS NOT NULL AND u.outstanding
       AND u.voucher IS NOT NULL
  ), candidates AS (
    SELECT o.id, count(*) OVER () AS number FROM open o
     WHERE o.is_possible AND (NOT o.is_refused OR NOT EXISTS (SELECT 1 FROM open x WHERE x.is_possible AND NOT x.is_refused))
  )
  UPDATE payments p
     SET status = 'settled', settled_at = clock_timestamp(), final_at = clock_timestamp(), updated_at = clock_timestamp(),
         charged = CASE WHEN c.id IS NULL THEN 0 WHEN c.number = 1 THEN LEAST(p_excess, p.ceiling - p_channel.charged) END,
         failure_code = CASE WHEN c.id IS NULL THEN 'not_charged' WHEN c.number > 1 THEN 'charge_not_known' END,
         failure_detail = CASE WHEN c.number > 1 THEN
           format('The seller charged %s USDC for one or more of %s requests whose responses were lost. Nothing shows for which.',
                  purser_usdc(p_excess), c.number) END,
         delivered = CASE WHEN c.number > 1 THEN coalesce(p.delivered, FALSE) ELSE p.delivered END
    FROM open o LEFT JOIN candidates c ON c.id = o.id
   WHERE p.agent_id = p_channel.agent_id AND p.id = o.id
     AND NOT EXISTS (SELECT 1 FROM channels b
                      WHERE b.agent_id = p_channel.agent_id AND b.id = p_channel.id AND b.busy_payment = p.id);
$$;
