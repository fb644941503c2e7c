-- How much later a gas bucket is full again after this cost is taken: as in purser_rate_lease, but per day instead of per
-- minute. An account without a limit is only counted.
CREATE FUNCTION purser_gas_step(p_chain_id BIGINT, p_account TEXT, p_cost NUMERIC)
RETURNS INTERVAL LANGUAGE sql STABLE AS $$
  SELECT purser_gas_refill(p_cost, (
    SELECT l.per_day FROM gas_limits l WHERE l.chain_id = p_chain_id AND l.name = split_part(p_account, ':', 1)));
$$;
