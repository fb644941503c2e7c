-- The settlement engine: who may use a relayer key now, which transactions it signed, which
-- authorizations each of them carries, and what gas it spent.

ALTER TABLE settlements
  -- The transfer was made by a transaction that is not ours.
  ADD COLUMN by_other BOOLEAN NOT NULL DEFAULT FALSE,
  -- Claimed by this lane under this lease; a claim of a lapsed lease is void.
  ADD COLUMN lane_address TEXT CHECK (lane_address ~ '^0x[0-9a-f]{40}$'),
  ADD COLUMN lane_epoch BIGINT,
  -- How many transactions have carried it; a row that failed in a batch travels alone next time.
  ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN next_attempt_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  -- An agent's own authorization that is to be canceled on chain instead of relayed.
  ADD COLUMN cancel_signature BYTEA;

-- What a lane claims, oldest first.
CREATE INDEX settlements_claimable_idx ON settlements (chain_id, created_at)
  WHERE status = 'queued' AND lane_address IS NULL AND (relay OR cancel_signature IS NOT NULL);
-- What may expire next.
CREATE INDEX settlements_expiring_idx ON settlements (chain_id, valid_before)
  WHERE status IN ('queued', 'submitted');

-- A relayer key on one chain, leased by one process at a time on the database's clock. The epoch grows
-- with every change of holder: what an earlier holder still tries to write no longer matches.
CREATE TABLE relayer_lanes (
  chain_id BIGINT NOT NULL,
  address TEXT NOT NULL CHECK (address ~ '^0x[0-9a-f]{40}$'),
  lease_owner TEXT,
  lease_epoch BIGINT NOT NULL DEFAULT 0,
  lease_until TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  next_nonce BIGINT NOT NULL DEFAULT 0 CHECK (next_nonce >= 0),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (chain_id, address)
);

-- One nonce of a lane and the calldata bound to it for good; only its fee may change, attempt by attempt.
-- pending: may still be mined. mined: final on chain. replaced: its nonce was finally used by a
-- transaction that is not ours, so none of its attempts can ever be mined.
CREATE TABLE relayer_transactions (
  chain_id BIGINT NOT NULL,
  lane_address TEXT NOT NULL CHECK (lane_address ~ '^0x[0-9a-f]{40}$'),
  nonce BIGINT NOT NULL CHECK (nonce >= 0),
  status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'mined', 'replaced')),
  to_address TEXT NOT NULL CHECK (to_address ~ '^0x[0-9a-f]{40}$'),
  calldata BYTEA NOT NULL,
  gas_limit BIGINT NOT NULL CHECK (gas_limit > 0),
  -- The part of the gas limit that counts against the daily ceiling, and the day it was counted on.
  metered_gas BIGINT NOT NULL DEFAULT 0 CHECK (metered_gas >= 0),
  metered_day DATE NOT NULL,
  mined_hash TEXT CHECK (mined_hash ~ '^0x[0-9a-f]{64}$'),
  block_number BIGINT,
  block_hash TEXT,
  gas_used BIGINT,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  finalized_at TIMESTAMPTZ(6),
  PRIMARY KEY (chain_id, lane_address, nonce),
  CONSTRAINT relayer_transactions_mined_has_proof CHECK (status <> 'mined' OR (mined_hash IS NOT NULL AND block_number IS NOT NULL))
);
CREATE INDEX relayer_transactions_pending_idx ON relayer_transactions (chain_id, lane_address, nonce)
  WHERE status = 'pending';

-- Every signed form of a transaction. Stored before it is sent, never deleted.
CREATE TABLE relayer_attempts (
  hash TEXT PRIMARY KEY CHECK (hash ~ '^0x[0-9a-f]{64}$'),
  chain_id BIGINT NOT NULL,
  lane_address TEXT NOT NULL,
  nonce BIGINT NOT NULL,
  attempt INTEGER NOT NULL CHECK (attempt >= 1),
  raw BYTEA NOT NULL,
  max_fee_wei NUMERIC(78, 0) NOT NULL,
  priority_fee_wei NUMERIC(78, 0) NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (chain_id, lane_address, nonce, attempt),
  FOREIGN KEY (chain_id, lane_address, nonce) REFERENCES relayer_transactions (chain_id, lane_address, nonce)
);

-- Which authorizations a transaction carries, in the order of its calls.
CREATE TABLE settlement_transactions (
  chain_id BIGINT NOT NULL,
  lane_address TEXT NOT NULL,
  lane_nonce BIGINT NOT NULL,
  position INTEGER NOT NULL,
  action TEXT NOT NULL CHECK (action IN ('transfer', 'cancel')),
  from_address TEXT NOT NULL,
  asset TEXT NOT NULL,
  nonce TEXT NOT NULL,
  PRIMARY KEY (chain_id, lane_address, lane_nonce, position),
  FOREIGN KEY (chain_id, lane_address, lane_nonce) REFERENCES relayer_transactions (chain_id, lane_address, nonce)
);
CREATE INDEX settlement_transactions_settlement_idx ON settlement_transactions (from_address, chain_id, asset, nonce);

-- Gas of facilitated work per UTC day, all lanes and replicas together. A transaction counts with its
-- limit when it is signed and is corrected to what it used when it is final.
CREATE TABLE relayer_gas_days (
  chain_id BIGINT NOT NULL,
  day DATE NOT NULL,
  gas BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (chain_id, day)
);

-- Takes or renews nothing unless the lease is free or lapsed; answers the new epoch and the next nonce.
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

-- Persists one signed transaction: its bytes, what it carries, the nonce it takes, the gas it may use.
-- All or nothing, and only while the lease holds and every row is still claimed under it.
CREATE FUNCTION purser_lane_persist(
  p_chain_id BIGINT, p_address TEXT, p_owner TEXT, p_epoch BIGINT, p_nonce BIGINT,
  p_to TEXT, p_calldata BYTEA, p_gas_limit BIGINT, p_metered_gas BIGINT, p_gas_ceiling BIGINT,
  p_hash TEXT, p_raw BYTEA, p_max_fee NUMERIC, p_priority_fee NUMERIC,
  p_actions TEXT[], p_from TEXT[], p_asset TEXT[], p_nonces TEXT[]
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  touched INTEGER;
  gas_today BIGINT;
  today DATE := (clock_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
  UPDATE relayer_lanes SET next_nonce = p_nonce + 1
   WHERE chain_id = p_chain_id AND address = p_address AND lease_owner = p_owner
     AND lease_epoch = p_epoch AND lease_until > clock_timestamp() AND next_nonce <= p_nonce;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'lane lease lost' USING ERRCODE = 'PU001';
  END IF;
  UPDATE settlements s
     SET status = 'submitted', tx_hash = p_hash, attempts = s.attempts + 1, updated_at = clock_timestamp()
    FROM unnest(p_from, p_asset, p_nonces) AS item (from_address, asset, nonce)
   WHERE s.from_address = item.from_address AND s.chain_id = p_chain_id AND s.asset = item.asset
     AND s.nonce = item.nonce AND s.status = 'queued' AND s.lane_address = p_address AND s.lane_epoch = p_epoch;
  GET DIAGNOSTICS touched = ROW_COUNT;
  IF touched <> cardinality(p_from) THEN
    RAISE EXCEPTION 'a claimed settlement changed hands' USING ERRCODE = 'PU002';
  END IF;
  INSERT INTO relayer_transactions
    (chain_id, lane_address, nonce, to_address, calldata, gas_limit, metered_gas, metered_day)
  VALUES (p_chain_id, p_address, p_nonce, p_to, p_calldata, p_gas_limit, p_metered_gas, today);
  INSERT INTO relayer_attempts
    (hash, chain_id, lane_address, nonce, attempt, raw, max_fee_wei, priority_fee_wei)
  VALUES (p_hash, p_chain_id, p_address, p_nonce, 1, p_raw, p_max_fee, p_priority_fee);
  INSERT INTO settlement_transactions
    (chain_id, lane_address, lane_nonce, position, action, from_address, asset, nonce)
  SELECT p_chain_id, p_address, p_nonce, item.position - 1, item.action, item.from_address, item.asset, item.nonce
    FROM unnest(p_actions, p_from, p_asset, p_nonces) WITH ORDINALITY
      AS item (action, from_address, asset, nonce, position);
  IF p_metered_gas > 0 THEN
    INSERT INTO relayer_gas_days AS total (chain_id, day, gas) VALUES (p_chain_id, today, p_metered_gas)
    ON CONFLICT (chain_id, day) DO UPDATE SET gas = total.gas + EXCLUDED.gas
    RETURNING total.gas INTO gas_today;
    IF gas_today > p_gas_ceiling THEN
      RAISE EXCEPTION 'the daily gas ceiling is reached' USING ERRCODE = 'PU003';
    END IF;
  END IF;
END;
$$;

-- Writes proven outcomes: settlement, the agent's payment and its budget, and the word to every waiter,
-- in one transaction. Rows that are final already stay as they are.
-- Each element: {from, asset, nonce, status, hash, block, byOther, reason, message}.
CREATE FUNCTION purser_settlements_finalize(p_chain_id BIGINT, p_outcomes JSONB)
RETURNS INTEGER LANGUAGE plpgsql AS $$
DECLARE
  done settlements%ROWTYPE;
  finished INTEGER := 0;
BEGIN
  -- One order of locks for all finalizers.
  PERFORM 1 FROM settlements s
    JOIN jsonb_to_recordset(p_outcomes) AS o ("from" TEXT, asset TEXT, nonce TEXT)
      ON s.from_address = o."from" AND s.chain_id = p_chain_id AND s.asset = o.asset AND s.nonce = o.nonce
   ORDER BY s.agent_id, s.from_address, s.nonce FOR UPDATE OF s;
  FOR done IN
    WITH changed AS (
      UPDATE settlements s
         SET status = o.status, tx_hash = coalesce(o.hash, s.tx_hash), block_number = o.block,
             by_other = coalesce(o."byOther", FALSE), error_reason = o.reason, error_message = o.message,
             settled_at = CASE WHEN o.status = 'settled' THEN clock_timestamp() END,
             updated_at = clock_timestamp()
        FROM jsonb_to_recordset(p_outcomes) AS o
             ("from" TEXT, asset TEXT, nonce TEXT, status TEXT, hash TEXT, block BIGINT, "byOther" BOOLEAN,
              reason TEXT, message TEXT)
       WHERE s.from_address = o."from" AND s.chain_id = p_chain_id AND s.asset = o.asset
         AND s.nonce = o.nonce AND s.status IN ('queued', 'submitted')
      RETURNING s.*)
    SELECT * FROM changed ORDER BY agent_id, from_address, nonce
  LOOP
    finished := finished + 1;
    IF done.agent_id IS NOT NULL THEN
      IF done.status = 'settled' THEN
        PERFORM purser_payment_settled(done.agent_id, done.id, done.tx_hash, done.block_number);
      ELSE
        PERFORM purser_payment_voided(done.agent_id, done.id, done.error_reason, done.error_message);
      END IF;
    END IF;
    PERFORM pg_notify('purser_settled', jsonb_build_object('id', done.id, 'status', done.status,
      'txHash', done.tx_hash, 'block', done.block_number::text, 'at', done.settled_at,
      'byOther', done.by_other, 'reason', done.error_reason, 'message', left(done.error_message, 500))::text);
  END LOOP;
  RETURN finished;
END;
$$;

-- Ends a transaction: proven outcomes are written, what it carried without effect goes back to the
-- queue, and the metered gas is corrected. Facts of the chain: no lease is needed to record them, and
-- recording them twice changes nothing.
CREATE FUNCTION purser_transaction_final(
  p_chain_id BIGINT, p_address TEXT, p_nonce BIGINT, p_status TEXT,
  p_hash TEXT, p_block_number BIGINT, p_block_hash TEXT, p_gas_used BIGINT, p_outcomes JSONB
) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  done relayer_transactions%ROWTYPE;
BEGIN
  UPDATE relayer_transactions
     SET status = p_status, mined_hash = p_hash, block_number = p_block_number, block_hash = p_block_hash,
         gas_used = p_gas_used, finalized_at = clock_timestamp()
   WHERE chain_id = p_chain_id AND lane_address = p_address AND nonce = p_nonce AND status = 'pending'
  RETURNING * INTO done;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  PERFORM purser_settlements_finalize(p_chain_id, p_outcomes);
  UPDATE settlements s
     SET status = 'queued', lane_address = NULL, lane_epoch = NULL, tx_hash = NULL,
         next_attempt_at = '-infinity', updated_at = clock_timestamp()
    FROM settlement_transactions item
   WHERE item.chain_id = p_chain_id AND item.lane_address = p_address AND item.lane_nonce = p_nonce
     AND s.from_address = item.from_address AND s.chain_id = p_chain_id AND s.asset = item.asset
     AND s.nonce = item.nonce AND s.status = 'submitted' AND s.lane_address = p_address;
  IF done.metered_gas > 0 THEN
    -- The metered share of what was used is the metered share of the limit.
    UPDATE relayer_gas_days
       SET gas = gas - done.metered_gas
             + floor(done.metered_gas::numeric * coalesce(p_gas_used, 0) / done.gas_limit)::bigint
     WHERE chain_id = p_chain_id AND day = done.metered_day;
  END IF;
END;
$$;
