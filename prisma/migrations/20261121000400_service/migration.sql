-- The marketplace: paid endpoints with the terms they were probed at. The pinned terms (host, payTo,
-- asset, network, ceiling) are what a fetch by listing is held to, whatever the seller says later.

CREATE TABLE listings (
  id TEXT PRIMARY KEY,
  -- owner: an owner listed it. bazaar: a seller that settles here announced it. built-in: our own demo.
  source TEXT NOT NULL CHECK (source IN ('owner', 'bazaar', 'built-in')),
  owner_id TEXT REFERENCES owners (id),
  -- Names a built-in listing through changes of its URL, and across replicas.
  built_in_key TEXT UNIQUE,
  name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 80),
  description TEXT NOT NULL DEFAULT '' CHECK (length(description) <= 500),
  category TEXT NOT NULL DEFAULT 'other' CHECK (length(category) BETWEEN 1 AND 40),
  url TEXT NOT NULL CHECK (length(url) BETWEEN 8 AND 2048),
  method TEXT NOT NULL CHECK (method IN ('GET', 'POST', 'PUT', 'PATCH', 'DELETE')),
  host TEXT NOT NULL,
  pay_to TEXT NOT NULL CHECK (pay_to ~ '^0x[0-9a-f]{40}$'),
  asset TEXT NOT NULL CHECK (asset ~ '^0x[0-9a-f]{40}$'),
  network TEXT NOT NULL,
  price NUMERIC(78, 0) NOT NULL CHECK (price > 0),
  price_ceiling NUMERIC(78, 0) NOT NULL CHECK (price_ceiling > 0),
  status TEXT NOT NULL CHECK (status IN ('active', 'failing', 'paused')),
  -- Why it is failing: a code (listing_mismatch, not_probed, or the probe's error) and a sentence.
  flag TEXT,
  status_reason TEXT,
  x402_version INTEGER NOT NULL DEFAULT 2,
  -- The accepted entry of the live 402, and the bazaar extension the seller announced, as received.
  requirement JSONB NOT NULL,
  extensions JSONB,
  mime_type TEXT,
  -- A short start of the 402's preview or of a free answer, never of paid content.
  sample TEXT,
  uses BIGINT NOT NULL DEFAULT 0 CHECK (uses >= 0),
  failures INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
  last_probed_at TIMESTAMPTZ(6),
  next_probe_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  updated_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT listings_owner_listed CHECK ((source = 'owner') = (owner_id IS NOT NULL)),
  CONSTRAINT listings_built_in_named CHECK ((source = 'built-in') = (built_in_key IS NOT NULL)),
  CONSTRAINT listings_failing_says_why CHECK (status <> 'failing' OR flag IS NOT NULL)
);
CREATE INDEX listings_created_at_idx ON listings (created_at DESC, id DESC);
CREATE INDEX listings_owner_id_created_at_idx ON listings (owner_id, created_at DESC, id DESC);
CREATE INDEX listings_pay_to_idx ON listings (pay_to);
-- What is due for a probe; paused listings are left alone.
CREATE INDEX listings_next_probe_at_idx ON listings (next_probe_at) WHERE status <> 'paused';
-- An owner lists an endpoint once; a seller's announcements of one endpoint are one listing.
CREATE UNIQUE INDEX listings_owner_endpoint_key ON listings (owner_id, url, method) WHERE source = 'owner';
CREATE UNIQUE INDEX listings_bazaar_endpoint_key ON listings (url, method, pay_to, network) WHERE source = 'bazaar';

-- How verify and settle requests ended, per UTC hour, all replicas together. Settlements themselves are
-- rows; a verify leaves none, so it is counted. Counts of a process are added every few seconds: a crash
-- loses seconds of statistics, never money.
CREATE TABLE facilitator_hours (
  hour TIMESTAMPTZ(6) NOT NULL,
  operation TEXT NOT NULL CHECK (operation IN ('verify', 'settle')),
  outcome TEXT NOT NULL CHECK (outcome IN ('ok', 'refused', 'pending', 'error')),
  count BIGINT NOT NULL CHECK (count >= 0),
  PRIMARY KEY (hour, operation, outcome)
);

-- Which form of each file in prisma/functions this database has.
CREATE TABLE purser_functions (
  name TEXT PRIMARY KEY,
  checksum TEXT NOT NULL,
  applied_at TIMESTAMPTZ(6) NOT NULL DEFAULT now()
);
