-- A receiver's claims, settles and refunds by when they were done, the open ones last: read by each of its settles. A refund is
-- stored under its payer, so the receiver is taken from its channel.
CREATE INDEX settlements_receiver_orders_idx
  ON settlements (chain_id, coalesce(terms->'config'->>'receiver', from_address), coalesce(settled_at, 'infinity'::timestamptz))
  WHERE terms->>'scheme' IN ('channel-claim', 'channel-settle', 'channel-refund')
    AND status IN ('queued', 'submitted', 'settled');
