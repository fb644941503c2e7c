-- Programs that connect by OAuth (docs/decisions/0022). What they are given is a key of the agent, which nobody holds:
-- tokens stand for it, and whatever ends the key ends them.

CREATE TABLE oauth_clients (
  id TEXT PRIMARY KEY CHECK (length(id) <= 500),
  name TEXT NOT NULL,
  redirect_uris TEXT[] NOT NULL CHECK (cardinality(redirect_uris) BETWEEN 1 AND 20),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  fetched_at TIMESTAMPTZ(6),
  used_at TIMESTAMPTZ(6)
);
CREATE INDEX oauth_clients_created_at_idx ON oauth_clients (created_at);

CREATE TABLE oauth_requests (
  id TEXT PRIMARY KEY,
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  session_id TEXT NOT NULL,
  client_id TEXT NOT NULL,
  client_name TEXT NOT NULL,
  redirect_uri TEXT NOT NULL,
  state TEXT,
  code_challenge TEXT NOT NULL CHECK (code_challenge ~ '^[A-Za-z0-9_-]{43}$'),
  label TEXT NOT NULL CHECK (length(label) <= 80),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  expires_at TIMESTAMPTZ(6) NOT NULL,
  decided_at TIMESTAMPTZ(6),
  key_id TEXT,
  code_hash BYTEA UNIQUE CHECK (length(code_hash) = 32),
  code_expires_at TIMESTAMPTZ(6),
  code_used_at TIMESTAMPTZ(6),
  CONSTRAINT oauth_requests_code_is_whole
    CHECK ((key_id IS NULL) = (code_hash IS NULL) AND (key_id IS NULL) = (code_expires_at IS NULL)
       AND (key_id IS NULL OR decided_at IS NOT NULL) AND (code_used_at IS NULL OR key_id IS NOT NULL))
);
CREATE INDEX oauth_requests_owner_id_created_at_idx ON oauth_requests (owner_id, created_at DESC);
CREATE INDEX oauth_requests_created_at_idx ON oauth_requests (created_at);

CREATE TABLE oauth_connections (
  key_id TEXT PRIMARY KEY REFERENCES api_keys (id) ON DELETE CASCADE,
  client_id TEXT NOT NULL,
  client_name TEXT NOT NULL,
  redirect_uri TEXT NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now()
);
CREATE INDEX oauth_connections_client_id_idx ON oauth_connections (client_id);

CREATE TABLE oauth_tokens (
  hash BYTEA PRIMARY KEY CHECK (length(hash) = 32),
  key_id TEXT NOT NULL REFERENCES oauth_connections (key_id) ON DELETE CASCADE,
  kind TEXT NOT NULL CHECK (kind IN ('access', 'refresh')),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  expires_at TIMESTAMPTZ(6) NOT NULL,
  used_at TIMESTAMPTZ(6)
);
CREATE INDEX oauth_tokens_key_id_idx ON oauth_tokens (key_id);
CREATE INDEX oauth_tokens_expires_at_idx ON oauth_tokens (expires_at);
