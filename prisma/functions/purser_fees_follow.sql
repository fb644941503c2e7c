-- Makes the fee entries of these settlements agree with the settlements: an entry exists exactly while its settlement is settled.
-- A fee is charged only for a transfer that our own transaction made; a payment of fees counts, no matter who sent it. The accounts change
-- by what changed here, so that running it twice changes nothing. Runs in the transaction that writes the outcomes.
CREATE FUNCTION purser_fees_follow(p_chain_id BIGINT, p_outcomes JSONB) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  WITH named AS MATERIALIZED (
    SELECT one.*
      FROM (SELECT DISTINCT o."from", o.asset, o.nonce
              FROM jsonb_to_recordset(p_outcomes) AS o ("from" TEXT, asset TEXT, nonce TEXT)) AS o
      CROSS JOIN LATERAL (
        SELECT s.from_address, s.asset, s.nonce, s.id, s.value, s.fee,
               s.status = 'settled' AND (NOT s.fee ? 'amount' OR NOT s.by_other) AS due
          FROM settlements s
         WHERE s.from_address = o."from" AND s.chain_id = p_chain_id AND s.asset = o.asset AND s.nonce = o.nonce
         LIMIT 1) AS one
     WHERE one.fee IS NOT NULL),
  gone AS (
    DELETE FROM fee_entries e WHERE e.ctid = ANY (ARRAY(
      SELECT found.ctid FROM named n
       CROSS JOIN LATERAL (
         SELECT f.ctid FROM fee_entries f
          WHERE f.from_address = n.from_address AND f.chain_id = p_chain_id AND f.asset = n.asset AND f.nonce = n.nonce
          LIMIT 1) AS found
       WHERE NOT n.due))
    RETURNING e.account, e.kind, -e.amount AS amount),
  fresh AS (
    INSERT INTO fee_entries (from_address, chain_id, asset, nonce, id, kind, account, amount, value)
    SELECT n.from_address, p_chain_id, n.asset, n.nonce, n.id, CASE WHEN n.fee ? 'amount' THEN 'fee' ELSE 'payment' END,
           n.fee->>'account', coalesce((n.fee->>'amount')::numeric, n.value), n.value
      FROM named n WHERE n.due
    ON CONFLICT (from_address, chain_id, asset, nonce) DO NOTHING
    RETURNING account, kind, amount),
  moved AS (
    SELECT m.account, coalesce(sum(m.amount) FILTER (WHERE m.kind = 'fee'), 0) AS charged,
           coalesce(sum(m.amount) FILTER (WHERE m.kind = 'payment'), 0) AS paid
      FROM (SELECT * FROM gone UNION ALL SELECT * FROM fresh) AS m GROUP BY m.account)
  -- In the order of the accounts, so that two of these do not deadlock.
  INSERT INTO fee_accounts AS a (chain_id, account, charged, paid)
  SELECT p_chain_id, m.account, m.charged, m.paid FROM moved m ORDER BY m.account
  ON CONFLICT (chain_id, account) DO UPDATE
     SET charged = a.charged + EXCLUDED.charged, paid = a.paid + EXCLUDED.paid, tx = EXCLUDED.tx;
END;
$$;
