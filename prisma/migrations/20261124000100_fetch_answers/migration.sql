-- Answers are kept to the letter: JSONB would sort their members and rewrite their numbers. Before the answer is there
-- (status_code null), what the request has heard so far.
ALTER TABLE idempotency_keys ALTER COLUMN response TYPE TEXT USING response::text;

-- Answers an agent paid for and asked to have told again for a while (maxAge). Never told to another agent.
CREATE TABLE cached_answers (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  -- SHA-256 of method, URL and the headers that were forwarded.
  key BYTEA NOT NULL CHECK (length(key) = 32),
  -- JSON to the letter; null until the first one is there.
  answer TEXT,
  bytes BIGINT NOT NULL DEFAULT 0 CHECK (bytes >= 0),
  payment_id TEXT,
  cached_at TIMESTAMPTZ(6),
  -- Who fetches it now, and until when the others wait for that.
  claim TEXT,
  claimed_until TIMESTAMPTZ(6),
  -- Also of a newer answer or claim: when it was last of use to anybody.
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (agent_id, key),
  CHECK ((answer IS NULL) = (cached_at IS NULL)),
  CHECK ((claim IS NULL) = (claimed_until IS NULL))
);
CREATE INDEX cached_answers_created_at_idx ON cached_answers (created_at);

-- Sites that take a signature for a payment made before (sign-in-with-x), and the agent's newest payment there.
CREATE TABLE paid_sites (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  site TEXT NOT NULL CHECK (length(site) BETWEEN 1 AND 300),
  payee TEXT NOT NULL CHECK (payee ~ '^0x[0-9a-f]{40}$'),
  payment_id TEXT NOT NULL,
  paid_at TIMESTAMPTZ(6) NOT NULL,
  PRIMARY KEY (agent_id, site, payee)
);
