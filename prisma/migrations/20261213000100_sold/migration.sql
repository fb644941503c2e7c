-- What merchants see of what was sold.

-- As the payment states it, not verified. Null where it states none, and in rows of the build before.
ALTER TABLE settlements ADD COLUMN resource_description TEXT;

-- Payments that somebody else relayed, by their transaction; those that we relayed are found by the hashes that we sent.
CREATE INDEX settlements_other_hash_idx ON settlements (tx_hash) WHERE by_other;

-- Why payments for a product of a known merchant were refused before they became a settlement, by the day (UTC).
-- method: empty where the request does not name it. The URL has no query.
CREATE TABLE merchant_product_refusals (
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  day TIMESTAMPTZ(6) NOT NULL,
  url TEXT NOT NULL CHECK (length(url) <= 1024),
  method TEXT NOT NULL CHECK (length(method) <= 16),
  reason TEXT NOT NULL CHECK (length(reason) <= 80),
  count BIGINT NOT NULL CHECK (count > 0),
  last_at TIMESTAMPTZ(6) NOT NULL,
  PRIMARY KEY (owner_id, day, url, method, reason)
);
CREATE INDEX merchant_product_refusals_day_idx ON merchant_product_refusals (day);

-- The public page of a settlement, which its merchant made. Whoever knows the id may read it.
CREATE TABLE merchant_receipts (
  id TEXT PRIMARY KEY CHECK (length(id) >= 48),
  settlement_id TEXT NOT NULL UNIQUE,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp()
);
