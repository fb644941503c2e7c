-- Which scheme an authorization is of, and what it is beside the columns all have: NULL is EIP-3009. Permit2 counts
-- nonces of its own, shared by all who spend through it: they stand apart by their prefix.
ALTER TABLE settlements ADD COLUMN terms JSONB CHECK (terms ? 'scheme');
ALTER TABLE settlements DROP CONSTRAINT settlements_nonce_check;
ALTER TABLE settlements
  ADD CONSTRAINT settlements_nonce_check CHECK (nonce ~ '^(permit2:)?0x[0-9a-f]{64}$'),
  ADD CONSTRAINT settlements_nonce_is_its_schemes CHECK ((terms IS NULL) = (nonce ~ '^0x'));
-- Some are taken from one account alone: they wait for its lane, whichever replica holds it.
ALTER TABLE settlements
  ADD COLUMN only_lane TEXT GENERATED ALWAYS AS (terms->>'facilitator') STORED
    CHECK (only_lane ~ '^0x[0-9a-f]{40}$');
DROP INDEX settlements_claimable_idx;
CREATE INDEX settlements_claimable_idx ON settlements (chain_id, solo, class, turn)
  WHERE status = 'queued' AND lane_address IS NULL AND (relay OR cancel_signature IS NOT NULL) AND only_lane IS NULL;
CREATE INDEX settlements_bound_idx ON settlements (chain_id, only_lane, turn)
  WHERE status = 'queued' AND lane_address IS NULL AND (relay OR cancel_signature IS NOT NULL) AND only_lane IS NOT NULL;
