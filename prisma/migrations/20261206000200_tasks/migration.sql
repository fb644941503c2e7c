-- Tasks of an agent: budgets that it opens itself, out of its own limits.
CREATE TABLE tasks (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  -- Chosen by the agent.
  id TEXT NOT NULL CHECK (id ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'),
  name TEXT CHECK (length(name) BETWEEN 1 AND 60),
  ceiling NUMERIC(78, 0) NOT NULL CHECK (ceiling > 0),
  -- What its payments count now, reserved amounts included. A correction by the chain may put it above the ceiling.
  used NUMERIC(78, 0) NOT NULL DEFAULT 0 CHECK (used >= 0),
  payments INTEGER NOT NULL DEFAULT 0 CHECK (payments >= 0),
  ends_at TIMESTAMPTZ(6),
  closed_at TIMESTAMPTZ(6),
  ended_at TIMESTAMPTZ(6) GENERATED ALWAYS AS (LEAST(closed_at, ends_at)) STORED,
  -- When it last reserved a payment.
  used_at TIMESTAMPTZ(6),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (agent_id, id)
)
WITH (fillfactor = 70);
CREATE INDEX tasks_agent_idx ON tasks (agent_id, created_at DESC, id DESC);
-- The open ones are counted.
CREATE INDEX tasks_ended_idx ON tasks (agent_id, ended_at);
-- What retention deletes. Tasks that paid are kept as long as their payments.
CREATE INDEX tasks_unused_idx ON tasks (ended_at) WHERE used_at IS NULL;

ALTER TABLE payments ADD COLUMN task_id TEXT;
CREATE INDEX payments_task_idx ON payments (agent_id, task_id, created_at DESC, id DESC) WHERE task_id IS NOT NULL;
