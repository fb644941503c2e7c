-- What is known for a fact, and where it was read: every end of an authorization names its proof, and a
-- payment that is in a block is told apart from one that no reorganisation takes back.

-- accepted_block: the head when it was accepted. A use at or before it is somebody else's.
-- final_at: when its end was deep enough (`confirmations`); until then a reorganisation may undo it.
-- corrected_at: a later proof contradicted the end that stood here.
-- What ended before proofs were kept says so.
ALTER TABLE settlements
  ADD COLUMN accepted_block BIGINT,
  ADD COLUMN block_hash TEXT CHECK (block_hash ~ '^0x[0-9a-f]{64}$'),
  ADD COLUMN proof JSONB DEFAULT '{"kind": "unrecorded"}',
  ADD COLUMN final_at TIMESTAMPTZ(6) DEFAULT now(),
  ADD COLUMN corrected_at TIMESTAMPTZ(6),
  -- Refused in flight, and put into the queue once more at its caller's wish: never a second time.
  ADD COLUMN tried_again_at TIMESTAMPTZ(6),
  -- How far the chain has been searched for the event that used it: upwards from accepted_block, and
  -- downwards from there. And when the watch looks at it again after trouble.
  ADD COLUMN searched_up BIGINT,
  ADD COLUMN searched_down BIGINT,
  ADD COLUMN look_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  ADD COLUMN look_failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE settlements ALTER COLUMN proof DROP DEFAULT;
ALTER TABLE settlements ALTER COLUMN final_at DROP DEFAULT;
ALTER TABLE settlements
  ADD CONSTRAINT settlements_end_has_proof CHECK (status IN ('queued', 'submitted') OR proof IS NOT NULL);
-- Paid by others' transactions and not final yet: no lane follows them.
CREATE INDEX settlements_unfinal_idx ON settlements (chain_id, block_number)
  WHERE status = 'settled' AND by_other AND final_at IS NULL;

-- Refused, and not past their time.
CREATE INDEX settlements_refused_idx ON settlements (chain_id, valid_before)
  WHERE status = 'failed' AND proof->>'kind' = 'refusal';

ALTER TABLE payments ADD COLUMN final_at TIMESTAMPTZ(6) DEFAULT now();
ALTER TABLE payments ALTER COLUMN final_at DROP DEFAULT;

-- pending: may still be mined. included: in a block that may be taken back. mined: final on chain.
-- replaced: a block holds another transaction with its nonce (mined_hash names that one).
-- sent_block: the head when it was signed; it is in no block at or before that.
ALTER TABLE relayer_transactions
  ADD COLUMN sent_block BIGINT,
  DROP CONSTRAINT relayer_transactions_status_check,
  DROP CONSTRAINT relayer_transactions_mined_has_proof;
ALTER TABLE relayer_transactions
  ADD CONSTRAINT relayer_transactions_status_check CHECK (status IN ('pending', 'included', 'mined', 'replaced')),
  ADD CONSTRAINT relayer_transactions_mined_has_proof
    CHECK (status = 'pending' OR (mined_hash IS NOT NULL AND block_number IS NOT NULL)) NOT VALID;
CREATE INDEX relayer_transactions_followed_idx ON relayer_transactions (chain_id, lane_address, nonce)
  WHERE status IN ('pending', 'included');
DROP INDEX relayer_transactions_pending_idx;

-- Ends that later proof contradicted. Each is an alarm: something told here was not so.
CREATE TABLE settlement_corrections (
  from_address TEXT NOT NULL,
  chain_id BIGINT NOT NULL,
  asset TEXT NOT NULL,
  nonce TEXT NOT NULL,
  seq BIGSERIAL NOT NULL,
  settlement_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  before JSONB NOT NULL,
  after JSONB NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (from_address, chain_id, asset, nonce, seq)
);
CREATE INDEX settlement_corrections_created_at_idx ON settlement_corrections (created_at);
