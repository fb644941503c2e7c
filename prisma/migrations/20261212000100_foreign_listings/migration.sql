-- Documents of others that name paid URLs: `/.well-known/x402` of hosts that are listed here, and the catalogues that the
-- operator configured.
CREATE TABLE discovery_documents (
  url TEXT PRIMARY KEY CHECK (length(url) BETWEEN 8 AND 2048),
  kind TEXT NOT NULL CHECK (kind IN ('well-known', 'catalogue')),
  host TEXT NOT NULL,
  failures INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
  -- Why the last read failed, in our words.
  reason TEXT,
  read_at TIMESTAMPTZ(6),
  next_read_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX discovery_documents_next_read_at_idx ON discovery_documents (next_read_at);

-- URLs that they name. Our own probe decides whether one is listed; until then nobody sees it.
CREATE TABLE discovered_urls (
  id TEXT PRIMARY KEY,
  document_url TEXT NOT NULL REFERENCES discovery_documents (url) ON DELETE CASCADE,
  url TEXT NOT NULL CHECK (length(url) BETWEEN 8 AND 2048),
  host TEXT NOT NULL,
  -- What a catalogue says that the URL costs. A host's own document says nothing about it.
  pay_to TEXT CHECK (pay_to ~ '^0x[0-9a-f]{40}$'),
  network TEXT,
  price NUMERIC(78, 0) CHECK (price > 0),
  status TEXT NOT NULL DEFAULT 'waiting' CHECK (status IN ('waiting', 'listed', 'refused')),
  -- Why it was refused, in our words.
  reason TEXT,
  tries INTEGER NOT NULL DEFAULT 0 CHECK (tries >= 0),
  next_try_at TIMESTAMPTZ(6) NOT NULL DEFAULT now(),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT discovered_urls_refused_says_why CHECK (status <> 'refused' OR reason IS NOT NULL),
  CONSTRAINT discovered_urls_whole_terms CHECK ((pay_to IS NULL) = (network IS NULL) AND (pay_to IS NULL) = (price IS NULL))
);
CREATE UNIQUE INDEX discovered_urls_document_key ON discovered_urls (document_url, url);
CREATE INDEX discovered_urls_host_idx ON discovered_urls (host);
CREATE INDEX discovered_urls_next_try_at_idx ON discovered_urls (next_try_at) WHERE status = 'waiting';

-- Null: an owner, a payment or we ourselves listed it. Else 'well-known', or the URL of the catalogue. Such listings have
-- the source 'bazaar', which the build before knows.
ALTER TABLE listings ADD COLUMN found_in TEXT CHECK (length(found_in) <= 2048);
ALTER TABLE listings ADD CONSTRAINT listings_found_without_owner CHECK (found_in IS NULL OR source = 'bazaar');
CREATE INDEX listings_found_in_idx ON listings (found_in, url) WHERE found_in IS NOT NULL;
