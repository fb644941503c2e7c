-- What our own paid routes remember beyond one request (server/plugins/paywall/store.ts).

CREATE TABLE paywall_notes (
  kind TEXT NOT NULL,
  -- Of its name, which holds a URL of any length.
  hash TEXT NOT NULL,
  value JSONB,
  until TIMESTAMPTZ(6) NOT NULL,
  PRIMARY KEY (kind, hash)
);
CREATE INDEX paywall_notes_until_idx ON paywall_notes (until);
