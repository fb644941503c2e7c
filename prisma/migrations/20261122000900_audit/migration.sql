-- The audit, one unbroken chain of entries for each owner. `body` is the whole entry, as the exact text that was hashed:
-- who reads an export needs no Postgres to hash it again. The other columns only find it; the check compares them.
DROP TABLE audit_log;

-- The newest entry of each owner. Its row is what appends of one owner wait for, at the end of their transactions.
CREATE TABLE audit_heads (
  owner_id TEXT PRIMARY KEY REFERENCES owners (id),
  seq BIGINT NOT NULL DEFAULT 0 CHECK (seq >= 0),
  hash BYTEA NOT NULL DEFAULT decode(repeat('00', 32), 'hex') CHECK (length(hash) = 32),
  at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity'
);

-- No foreign key to the agent: checking it would lock the agent's row after the head's, against the order of all others.
CREATE TABLE audit_log (
  owner_id TEXT NOT NULL REFERENCES audit_heads (owner_id),
  seq BIGINT NOT NULL CHECK (seq > 0),
  id TEXT NOT NULL,
  agent_id TEXT,
  action TEXT NOT NULL,
  body TEXT NOT NULL,
  prev_hash BYTEA NOT NULL CHECK (length(prev_hash) = 32),
  hash BYTEA NOT NULL CHECK (length(hash) = 32),
  created_at TIMESTAMPTZ(6) NOT NULL,
  PRIMARY KEY (owner_id, seq)
);
CREATE INDEX audit_log_agent_id_created_at_idx ON audit_log (agent_id, created_at DESC, id DESC);
CREATE INDEX audit_log_owner_id_created_at_idx ON audit_log (owner_id, created_at DESC, id DESC);

-- What a transaction has to say, until it commits: then purser_audit_chain takes it from here. Nobody else ever sees a
-- row of it, and none outlives its transaction.
CREATE UNLOGGED TABLE audit_notes (
  n BIGSERIAL PRIMARY KEY,
  owner_id TEXT NOT NULL,
  agent_id TEXT,
  id TEXT NOT NULL DEFAULT 'aud_' || left(replace(gen_random_uuid()::text, '-', ''), 26),
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  before JSONB,
  after JSONB,
  request_id TEXT,
  proof JSONB
);

-- Adding is all that is granted. The role that migrates may be the one that serves: what an owner of a table may do to
-- its rows is a grant as well. A superuser asks for no grant; it meets purser_audit_is_kept.
REVOKE UPDATE, DELETE, TRUNCATE ON audit_log FROM CURRENT_USER, PUBLIC;
REVOKE DELETE, TRUNCATE ON audit_heads FROM CURRENT_USER, PUBLIC;
