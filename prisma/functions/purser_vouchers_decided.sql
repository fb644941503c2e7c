-- A receiver's total, by its voucher or by the chain, decides the payments whose outcome was unknown. p_excess: what the receiver
-- has charged beyond the charges that we know.
-- Nothing: it charged none of them. Otherwise it charged the only one that it could have charged. If there are several, the total
-- shows only their sum: none of them ends as unpaid, and none as paid.
-- Their ceiling stays signed. Not the payment that uses the channel now, which ends by itself: the total may be from before it.
-- The caller holds the lock on the channel. p_channel: as it was before the total was known.
CREATE FUNCTION purser_vouchers_decided(p_channel channels, p_excess NUMERIC) RETURNS VOID LANGUAGE sql AS $$
  UPDATE payments p
     SET status = 'settled', settled_at = clock_timestamp(), final_at = clock_timestamp(), updated_at = clock_timestamp(),
         charged = CASE WHEN NOT o.may_be_charged THEN 0
                        WHEN o.candidates = 1 THEN LEAST(p_excess, p.ceiling - p_channel.charged) END,
         failure_code = CASE WHEN NOT o.may_be_charged THEN 'not_charged' WHEN o.candidates > 1 THEN 'charge_not_known' END,
         failure_detail = CASE WHEN o.may_be_charged AND o.candidates > 1 THEN
           format('The seller charged %s USDC for one or more of %s requests whose responses were lost. Nothing shows for which.',
                  purser_usdc(p_excess), o.candidates) END,
         delivered = CASE WHEN o.may_be_charged AND o.candidates > 1 THEN coalesce(p.delivered, FALSE) ELSE p.delivered END
    FROM (
      SELECT u.id, may_be_charged, count(*) FILTER (WHERE may_be_charged) OVER () AS candidates
        FROM payments u, LATERAL (SELECT p_excess > 0 AND u.ceiling > p_channel.charged AS may_be_charged) m
       WHERE u.agent_id = p_channel.agent_id AND u.channel_id = p_channel.id AND u.ceiling IS NOT NULL AND u.outstanding
         AND u.voucher IS NOT NULL) o
   WHERE p.agent_id = p_channel.agent_id AND p.id = o.id
     AND NOT EXISTS (SELECT 1 FROM channels c
                      WHERE c.agent_id = p_channel.agent_id AND c.id = p_channel.id AND c.busy_payment = p.id);
$$;
