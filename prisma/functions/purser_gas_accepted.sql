-- Reserves the gas of newly accepted settlements from the accounts that pay for it, many settlements in one statement. The gas
-- of an agent's payment was decided when it was reserved, and here only counts against the share of all agents. The gas of
-- third parties, of merchants and of an agent's allowance must fit: if one does not, the whole statement fails, and the error's
-- detail names those that do not fit and when they will, so that the caller repeats the others.
CREATE FUNCTION purser_gas_accepted() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  at CONSTANT TIMESTAMPTZ := statement_timestamp();
  room JSONB;
  one RECORD;
  need DOUBLE PRECISION;
  short DOUBLE PRECISION;
  refused JSONB := '[]';
BEGIN
  WITH wanted AS (
    SELECT f.chain_id, u.account, sum(f.gas_hold) AS cost
      FROM fresh f, unnest(f.gas_accounts) AS u (account)
     WHERE f.gas_hold > 0 AND (f.agent_id IS NULL OR f.kind = 'allowance' OR position(':' IN u.account) = 0)
     GROUP BY 1, 2),
  taken AS (
    INSERT INTO gas_accounts AS g (chain_id, account, full_at, held)
    SELECT w.chain_id, w.account, at + purser_gas_refill(w.cost, (
             SELECT l.per_day FROM gas_limits l WHERE l.chain_id = w.chain_id AND l.name = split_part(w.account, ':', 1))), w.cost
      FROM wanted w ORDER BY w.chain_id, w.account
    ON CONFLICT (chain_id, account) DO UPDATE
       SET held = g.held + EXCLUDED.held, used_on = EXCLUDED.used_on,
           full_at = greatest(g.full_at, at) + (EXCLUDED.full_at - at)
    RETURNING chain_id, account, full_at)
  -- For each account with too little: the seconds of the day that it had left before.
  SELECT jsonb_object_agg(t.chain_id || ' ' || t.account, extract(epoch FROM at + interval '24 hours' - t.full_at
           + purser_gas_step(t.chain_id, t.account, w.cost)))
    INTO room
    FROM taken t JOIN wanted w USING (chain_id, account)
   WHERE t.full_at > at + interval '24 hours';
  IF room IS NULL THEN
    RETURN NULL;
  END IF;
  FOR one IN
    SELECT f.id, f.chain_id, f.gas_hold, ARRAY(
             SELECT a FROM unnest(f.gas_accounts) AS a WHERE room ? (f.chain_id || ' ' || a)) AS accounts
      FROM fresh f WHERE (f.agent_id IS NULL OR f.kind = 'allowance') AND f.gas_hold > 0 ORDER BY f.turn, f.nonce
  LOOP
    short := 0;
    FOR i IN 1 .. cardinality(one.accounts) LOOP
      need := extract(epoch FROM purser_gas_step(one.chain_id, one.accounts[i], one.gas_hold));
      IF need > 86400 THEN
        short := 'infinity';
      END IF;
      short := greatest(short, need - (room ->> (one.chain_id || ' ' || one.accounts[i]))::float8);
    END LOOP;
    IF short > 0 THEN
      refused := refused || jsonb_build_object('id', one.id, 'accounts', one.accounts, 'retryMs',
        CASE WHEN short < 'infinity' THEN ceil(short * 1000) END);
      CONTINUE;
    END IF;
    FOR i IN 1 .. cardinality(one.accounts) LOOP
      need := extract(epoch FROM purser_gas_step(one.chain_id, one.accounts[i], one.gas_hold));
      room := jsonb_set(room, ARRAY[one.chain_id || ' ' || one.accounts[i]],
        to_jsonb((room ->> (one.chain_id || ' ' || one.accounts[i]))::float8 - need));
    END LOOP;
  END LOOP;
  -- Rounding: their sum exceeds the budget by less than one microsecond's share.
  IF refused = '[]' THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'a gas budget is used up' USING ERRCODE = 'PU005', DETAIL = refused::text;
END;
$$;
CREATE TRIGGER settlements_gas AFTER INSERT ON settlements REFERENCING NEW TABLE AS fresh
  FOR EACH STATEMENT EXECUTE FUNCTION purser_gas_accepted();
