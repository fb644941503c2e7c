-- Takes a relayer lane whose lease is free or has lapsed, or renews the caller's own lease. Returns the new epoch and the next
-- nonce.
CREATE FUNCTION purser_lane_acquire(p_chain_id BIGINT, p_address TEXT, p_owner TEXT, p_lease_ms INTEGER)
RETURNS TABLE (epoch BIGINT, nonce BIGINT) LANGUAGE sql AS $$
  INSERT INTO relayer_lanes AS lane (chain_id, address, lease_owner, lease_epoch, lease_until)
  VALUES (p_chain_id, p_address, p_owner, 1, clock_timestamp() + p_lease_ms * interval '1 millisecond')
  ON CONFLICT (chain_id, address) DO UPDATE
     SET lease_owner = EXCLUDED.lease_owner, lease_epoch = lane.lease_epoch + 1,
         lease_until = EXCLUDED.lease_until
   WHERE lane.lease_until <= clock_timestamp()
  RETURNING lane.lease_epoch, lane.next_nonce;
$$;
