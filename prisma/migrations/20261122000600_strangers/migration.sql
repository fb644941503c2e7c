-- What strangers may cause, and how much of it.

-- URLs that settled payments nominated for the catalogue. Nothing of what a payment says about a seller is kept but
-- where to look: the words of a listing come from our own probe of that URL. A row stays for a day after its end, so
-- that quotas count it and a refused URL is not asked again at once.
CREATE TABLE nominations (
  id TEXT PRIMARY KEY,
  url TEXT NOT NULL CHECK (length(url) BETWEEN 8 AND 2048),
  host TEXT NOT NULL,
  pay_to TEXT NOT NULL CHECK (pay_to ~ '^0x[0-9a-f]{40}$'),
  network TEXT NOT NULL,
  payer TEXT NOT NULL CHECK (payer ~ '^0x[0-9a-f]{40}$'),
  status TEXT NOT NULL DEFAULT 'waiting' CHECK (status IN ('waiting', 'listed', 'refused')),
  -- Why it was refused, in our words.
  reason TEXT,
  tries INTEGER NOT NULL DEFAULT 0 CHECK (tries >= 0),
  next_try_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT nominations_refused_says_why CHECK (status <> 'refused' OR reason IS NOT NULL)
);
CREATE UNIQUE INDEX nominations_endpoint_key ON nominations (url, pay_to, network);
CREATE INDEX nominations_next_try_at_idx ON nominations (next_try_at) WHERE status = 'waiting';
CREATE INDEX nominations_payer_idx ON nominations (payer, created_at);
CREATE INDEX nominations_pay_to_idx ON nominations (pay_to, created_at);
CREATE INDEX nominations_host_idx ON nominations (host, created_at);
CREATE INDEX nominations_created_at_idx ON nominations (created_at);

-- Quotas count a host's listings.
CREATE INDEX listings_host_idx ON listings (host);

-- Every fetch an agent made, free or paid, refused or not: what left us on its behalf, and what came back. Neither
-- query nor body is kept, and of the path nothing that looks like a secret.
CREATE TABLE fetches (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  id TEXT NOT NULL,
  api_key_id TEXT,
  request_id TEXT,
  kind TEXT NOT NULL CHECK (kind IN ('fetch', 'quote')),
  method TEXT NOT NULL CHECK (length(method) <= 10),
  origin TEXT NOT NULL CHECK (length(origin) <= 300),
  path TEXT NOT NULL CHECK (length(path) <= 512),
  listing_id TEXT,
  -- running: not ended yet, or its process died.
  outcome TEXT NOT NULL DEFAULT 'running' CHECK (outcome IN ('running', 'free', 'paid', 'quoted', 'refused', 'failed')),
  -- The error code of one that was refused or failed.
  code TEXT,
  -- What the target answered last; null when nothing came.
  status INTEGER,
  bytes BIGINT NOT NULL DEFAULT 0 CHECK (bytes >= 0),
  -- How much of it is kept for a repeat with the same Idempotency-Key.
  kept_bytes BIGINT NOT NULL DEFAULT 0 CHECK (kept_bytes >= 0),
  payment_id TEXT,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  ended_at TIMESTAMPTZ(6),
  PRIMARY KEY (agent_id, id)
);
CREATE INDEX fetches_agent_id_created_at_idx ON fetches (agent_id, created_at DESC, id DESC);
CREATE INDEX fetches_created_at_idx ON fetches (created_at);
-- The quota of kept answers looks at these only.
CREATE INDEX fetches_kept_idx ON fetches (agent_id, created_at) WHERE kept_bytes > 0;

-- A contract owner is its address on one chain: code at the same address elsewhere is somebody else's. 0: a key, which is
-- the same everywhere.
ALTER TABLE owners ADD COLUMN chain_id BIGINT NOT NULL DEFAULT 0 CHECK (chain_id >= 0);
ALTER TABLE owners DROP CONSTRAINT owners_address_key;
ALTER TABLE owners ADD CONSTRAINT owners_address_chain_id_key UNIQUE (address, chain_id);
