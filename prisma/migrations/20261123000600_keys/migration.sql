-- Secrets that replicas share: random, and sealed by what keeps the master keys.
CREATE TABLE service_secrets (
  purpose    TEXT PRIMARY KEY,
  sealed     BYTEA NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp()
);
