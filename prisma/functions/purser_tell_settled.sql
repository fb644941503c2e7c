-- The word to whoever waits for this settlement, in any process.
CREATE FUNCTION purser_tell_settled(done settlements) RETURNS VOID LANGUAGE sql AS $$
  SELECT pg_notify('purser_settled', jsonb_build_object('id', done.id, 'status', done.status,
    'txHash', done.tx_hash, 'block', done.block_number::text, 'at', done.settled_at,
    'byOther', done.by_other, 'reason', done.error_reason, 'message', left(done.error_message, 500),
    'value', done.value::text)::text);
$$;
