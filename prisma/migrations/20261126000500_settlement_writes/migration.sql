-- What the writes of a settlement cost, further reduced; nothing is allowed that was not.

-- Its class and its only lane are written with the row (purser_settlement_turn) and held to what they are of. As generated
-- columns Postgres read their expressions anew for each row of every update that touches neither, which are all: a tenth
-- of what it did for a payment.
ALTER TABLE settlements
  ALTER COLUMN class DROP EXPRESSION IF EXISTS,
  ALTER COLUMN only_lane DROP EXPRESSION,
  ADD CONSTRAINT settlements_class_is_its_kinds CHECK (
    class = CASE kind WHEN 'withdrawal' THEN 0 WHEN 'facilitated' THEN 2 WHEN 'refund' THEN 2 ELSE 1 END),
  ADD CONSTRAINT settlements_only_lane_is_its_terms CHECK (only_lane IS NOT DISTINCT FROM terms->>'facilitator');

-- No index knows whether a lane has claimed a row, so a claim touches none of them. What is claimed and not yet sent is
-- passed by: a batch or two, for milliseconds.
DROP INDEX settlements_claimable_idx, settlements_bound_idx, settlements_payer_turn_idx, settlements_payee_turn_idx;
CREATE INDEX settlements_claimable_idx ON settlements (chain_id, solo, class, turn)
  WHERE status = 'queued' AND (relay OR cancel_signature IS NOT NULL) AND only_lane IS NULL;
CREATE INDEX settlements_bound_idx ON settlements (chain_id, only_lane, turn)
  WHERE status = 'queued' AND (relay OR cancel_signature IS NOT NULL) AND only_lane IS NOT NULL;
CREATE INDEX settlements_payer_turn_idx ON settlements (chain_id, class, from_address, turn)
  WHERE status = 'queued' AND (relay OR cancel_signature IS NOT NULL);
CREATE INDEX settlements_payee_turn_idx ON settlements (chain_id, class, to_address, turn)
  WHERE status = 'queued' AND (relay OR cancel_signature IS NOT NULL) AND leads;

-- Rows for half a page less its head, so that a claim of all of them finds room beside them.
ALTER TABLE settlements SET (fillfactor = 45);
