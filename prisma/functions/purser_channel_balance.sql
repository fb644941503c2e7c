-- What is in a channel's escrow, or on its way there: its deposits, except those that failed, less what came back.
CREATE FUNCTION purser_channel_balance(p_channel channels)
RETURNS NUMERIC LANGUAGE sql STABLE AS $$
  SELECT COALESCE(sum(p.amount), 0) - p_channel.returned FROM payments p
   WHERE p.agent_id = p_channel.agent_id AND p.channel_id = p_channel.id AND p.kind = 'deposit'
     AND p.status IN ('reserved', 'submitted', 'unknown', 'settled');
$$;
