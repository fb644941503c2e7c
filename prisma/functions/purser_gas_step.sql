-- How much later a bucket is full again when so much is taken from it: the same measure as in purser_rate_lease, of a
-- day instead of a minute. An account without a limit is only counted.
CREATE FUNCTION purser_gas_step(p_chain_id BIGINT, p_account TEXT, p_cost NUMERIC)
RETURNS INTERVAL LANGUAGE sql STABLE AS $$
  SELECT purser_gas_part(p_cost, (
    SELECT l.per_day FROM gas_limits l WHERE l.chain_id = p_chain_id AND l.name = split_part(p_account, ':', 1)));
$$;
