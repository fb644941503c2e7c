-- What operators did: one unbroken chain of entries, hashed as the owners' audits are. `body` is the whole entry, as the
-- exact text that was hashed; the other columns only find it, and the check compares them.
CREATE TABLE operator_actions (
  seq BIGINT PRIMARY KEY CHECK (seq > 0),
  id TEXT NOT NULL,
  action TEXT NOT NULL,
  body TEXT NOT NULL,
  prev_hash BYTEA NOT NULL CHECK (length(prev_hash) = 32),
  hash BYTEA NOT NULL CHECK (length(hash) = 32),
  created_at TIMESTAMPTZ(6) NOT NULL
);
CREATE INDEX operator_actions_action_seq_idx ON operator_actions (action, seq DESC);

-- Its newest entry; the one row is what appends wait for.
CREATE TABLE operator_head (
  single BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (single),
  seq BIGINT NOT NULL DEFAULT 0 CHECK (seq >= 0),
  hash BYTEA NOT NULL DEFAULT decode(repeat('00', 32), 'hex') CHECK (length(hash) = 32),
  at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity'
);

-- Adding is all that is granted; a superuser meets purser_audit_is_kept.
REVOKE UPDATE, DELETE, TRUNCATE ON operator_actions FROM CURRENT_USER, PUBLIC;
REVOKE DELETE, TRUNCATE ON operator_head FROM CURRENT_USER, PUBLIC;

-- Of the trace in which it was asked for (W3C traceparent), for the process that settles it; only where traces are configured.
ALTER TABLE settlements ADD COLUMN traceparent TEXT;
