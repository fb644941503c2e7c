-- Calls that come without a key of their own, and which earlier one an identical call joins (docs/decisions/0025).

ALTER TABLE idempotency_keys
  -- The key is ours: the caller sent none.
  ADD COLUMN implicit BOOLEAN NOT NULL DEFAULT FALSE,
  -- Since when its answer is known to have left us whole; null: an identical call joins it (purser_joinable).
  ADD COLUMN told_at TIMESTAMPTZ(6),
  -- The call that heard it, where a cancellation may take that back.
  ADD COLUMN told_call TEXT,
  -- What a cancellation of the call that reserved names (an MCP request); null: nothing can cancel it.
  ADD COLUMN call TEXT;
CREATE INDEX idempotency_keys_implicit_idx ON idempotency_keys (subject_id, route, body_hash, created_at DESC)
  WHERE implicit;
CREATE INDEX idempotency_keys_call_idx ON idempotency_keys (subject_id, call) WHERE call IS NOT NULL;
CREATE INDEX idempotency_keys_told_call_idx ON idempotency_keys (subject_id, told_call) WHERE told_call IS NOT NULL;
-- Answers that are kept only until they are told.
CREATE INDEX idempotency_keys_until_told_idx ON idempotency_keys (subject_id, updated_at)
  WHERE implicit AND call IS NULL AND response IS NOT NULL;

-- What a client does not wait for any more; read where money is reserved, whichever process that is.
CREATE TABLE canceled_calls (
  agent_id TEXT NOT NULL,
  call TEXT NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  PRIMARY KEY (agent_id, call)
);
CREATE INDEX canceled_calls_created_at_idx ON canceled_calls (created_at);
