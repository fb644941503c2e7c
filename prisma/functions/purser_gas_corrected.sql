-- The day's metered gas once a transaction's use is known (p_sign 1), or unknown again (-1). The metered
-- share of what was used is the metered share of the limit.
CREATE FUNCTION purser_gas_corrected(tx relayer_transactions, p_gas_used BIGINT, p_sign INTEGER)
RETURNS VOID LANGUAGE sql AS $$
  UPDATE relayer_gas_days
     SET gas = gas + p_sign * (floor(tx.metered_gas::numeric * p_gas_used / tx.gas_limit)::bigint - tx.metered_gas)
   WHERE chain_id = tx.chain_id AND day = tx.metered_day;
$$;
