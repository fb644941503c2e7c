-- Notifies the processes that wait for this settlement.
CREATE FUNCTION purser_signal_settled(done settlements) RETURNS VOID LANGUAGE sql AS $$
  SELECT pg_notify('purser_settled', purser_settled_message(done.id, done.status, done.tx_hash, done.block_number, done.settled_at,
    done.by_other, done.error_reason, done.error_message, done.value)::text);
$$;
