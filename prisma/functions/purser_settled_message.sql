-- The message to processes that wait for a settlement's outcome.
CREATE FUNCTION purser_settled_message(
  p_id TEXT, p_status TEXT, p_tx_hash TEXT, p_block_number BIGINT, p_at TIMESTAMPTZ, p_by_other BOOLEAN, p_reason TEXT,
  p_message TEXT, p_value NUMERIC
) RETURNS JSONB LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object('id', p_id, 'status', p_status, 'txHash', p_tx_hash, 'block', p_block_number::text, 'at', p_at,
    'byOther', p_by_other, 'reason', p_reason, 'message', left(p_message, 500), 'value', p_value::text);
$$;
