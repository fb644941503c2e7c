-- Telling people: what became true and somebody wants to hear, written in the transaction that made it true
-- (purser_notify), and who is told of it.

CREATE TABLE notifications (
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  -- The webhook-id: the same however often it is told.
  id TEXT NOT NULL CHECK (id ~ '^ntf_[0-9a-z]{26}$'),
  type TEXT NOT NULL CHECK (type ~ '^[a-z]+\.[a-z_]+$' AND length(type) <= 60),
  agent_id TEXT,
  subject_id TEXT NOT NULL,
  data JSONB NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (owner_id, id)
);
CREATE INDEX notifications_owner_idx ON notifications (owner_id, created_at DESC, id DESC);
CREATE INDEX notifications_type_idx ON notifications (owner_id, type, created_at DESC, id DESC);
-- What retention deletes first.
CREATE INDEX notifications_created_at_idx ON notifications (created_at);

CREATE TABLE webhooks (
  id TEXT PRIMARY KEY CHECK (id ~ '^whk_[0-9a-z]{26}$'),
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  url TEXT NOT NULL CHECK (length(url) <= 2000),
  -- '*' is every type, also those to come.
  types TEXT[] NOT NULL CHECK (cardinality(types) BETWEEN 1 AND 40),
  description TEXT NOT NULL DEFAULT '' CHECK (length(description) <= 200),
  status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'disabled')),
  disabled_reason TEXT,
  -- Sealed (plugins/custody/secret-box.ts), both under one master key.
  secret BYTEA NOT NULL,
  previous_secret BYTEA,
  previous_secret_until TIMESTAMPTZ(6),
  secret_kid TEXT NOT NULL,
  secret_hint TEXT NOT NULL,
  -- In a row, since when, and when the target is tried again.
  failures INTEGER NOT NULL DEFAULT 0,
  failing_since TIMESTAMPTZ(6),
  retry_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  -- About when it took something last; null: never.
  delivered_at TIMESTAMPTZ(6),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT webhooks_disabled_says_why CHECK ((status = 'disabled') = (disabled_reason IS NOT NULL)),
  CONSTRAINT webhooks_previous_is_whole CHECK ((previous_secret IS NULL) = (previous_secret_until IS NULL)),
  CONSTRAINT webhooks_failures_have_since CHECK ((failures = 0) = (failing_since IS NULL))
);
CREATE INDEX webhooks_owner_idx ON webhooks (owner_id, created_at DESC, id DESC);
CREATE INDEX webhooks_secret_kid_idx ON webhooks (secret_kid);

-- Written with their notification and forgotten with it (retention); no foreign key says so, since its check would be half
-- of what telling costs on the way of a payment. waiting: not tried yet. failed: tried, and tried again at next_attempt_at. given_up: only a resend sends it again.
CREATE TABLE webhook_deliveries (
  owner_id TEXT NOT NULL,
  id TEXT NOT NULL CHECK (id ~ '^dlv_[0-9a-z]{26}$'),
  webhook_id TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
  notification_id TEXT NOT NULL,
  type TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'waiting' CHECK (status IN ('waiting', 'delivered', 'failed', 'given_up')),
  -- One more with each claim: who lost a claim to another writes nothing.
  attempts INTEGER NOT NULL DEFAULT 0,
  claims BIGINT NOT NULL DEFAULT 0,
  last_status INTEGER,
  last_error TEXT CHECK (length(last_error) <= 500),
  next_attempt_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  give_up_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp() + interval '24 hours',
  delivered_at TIMESTAMPTZ(6),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (owner_id, id),
  CONSTRAINT webhook_deliveries_notification_key UNIQUE (owner_id, notification_id, webhook_id),
  CONSTRAINT webhook_deliveries_delivered_has_time CHECK ((status = 'delivered') = (delivered_at IS NOT NULL))
);
CREATE INDEX webhook_deliveries_webhook_idx ON webhook_deliveries (webhook_id, created_at DESC, id DESC);
CREATE INDEX webhook_deliveries_turn_idx ON webhook_deliveries (owner_id, webhook_id, next_attempt_at)
  WHERE status IN ('waiting', 'failed');
CREATE INDEX webhook_deliveries_due_idx ON webhook_deliveries (next_attempt_at) WHERE status IN ('waiting', 'failed');

-- Which share of the daily limit the owner was told of last, and when.
ALTER TABLE agents ADD COLUMN limit_told SMALLINT NOT NULL DEFAULT 0 CHECK (limit_told IN (0, 80, 100));
ALTER TABLE agents ADD COLUMN limit_told_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity';
-- Whether the owner was told that it is low.
ALTER TABLE ledger_balances ADD COLUMN low_told BOOLEAN NOT NULL DEFAULT FALSE;
