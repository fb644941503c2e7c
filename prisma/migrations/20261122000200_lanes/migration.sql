-- Lanes that never wedge, and a fair order of work.

-- given_up: its nonce was used up by a small transfer of the lane to itself, because nodes refused the work.
ALTER TABLE relayer_transactions DROP CONSTRAINT relayer_transactions_status_check;
ALTER TABLE relayer_transactions ADD CONSTRAINT relayer_transactions_status_check
  CHECK (status IN ('pending', 'included', 'mined', 'replaced', 'given_up'));

-- void: uses up the nonce instead of doing the work. answer: what a node last said of it, "taken" or the
-- class of its refusal; null while nobody has answered.
ALTER TABLE relayer_attempts
  ADD COLUMN purpose TEXT NOT NULL DEFAULT 'work' CHECK (purpose IN ('work', 'void')),
  ADD COLUMN answer TEXT;

-- class: withdrawals before agents' payments before strangers'. turn: when its fair share is due, within
-- the class. leads: nothing of the same payer waited before it. solo: travels in a transaction of its own.
-- faults: mined without effect, by its own doing. given_up: how many of its transactions were given up.
ALTER TABLE settlements
  ADD COLUMN class SMALLINT NOT NULL GENERATED ALWAYS AS
    (CASE kind WHEN 'withdrawal' THEN 0 WHEN 'facilitated' THEN 2 ELSE 1 END) STORED,
  ADD COLUMN turn TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  ADD COLUMN leads BOOLEAN NOT NULL DEFAULT TRUE,
  ADD COLUMN solo BOOLEAN NOT NULL DEFAULT FALSE,
  ADD COLUMN faults INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN given_up INTEGER NOT NULL DEFAULT 0;

-- What a lane claims, in this order: however long the queue, it reads only what it takes.
DROP INDEX settlements_claimable_idx;
CREATE INDEX settlements_claimable_idx ON settlements (chain_id, solo, class, turn)
  WHERE status = 'queued' AND lane_address IS NULL AND (relay OR cancel_signature IS NOT NULL);
-- The last turns of a payer and of a payee among what waits: a newcomer's turn comes after them.
CREATE INDEX settlements_payer_turn_idx ON settlements (chain_id, class, from_address, turn)
  WHERE status = 'queued' AND lane_address IS NULL AND (relay OR cancel_signature IS NOT NULL);
CREATE INDEX settlements_payee_turn_idx ON settlements (chain_id, class, to_address, turn)
  WHERE status = 'queued' AND lane_address IS NULL AND (relay OR cancel_signature IS NOT NULL) AND leads;

-- Payers whose payments burnt gas, or did nothing when it counted: they travel alone for a while.
CREATE TABLE lane_offenders (
  chain_id BIGINT NOT NULL,
  payer TEXT NOT NULL CHECK (payer ~ '^0x[0-9a-f]{40}$'),
  count INTEGER NOT NULL DEFAULT 1,
  until TIMESTAMPTZ(6) NOT NULL,
  PRIMARY KEY (chain_id, payer)
);
CREATE INDEX lane_offenders_until_idx ON lane_offenders (until);
