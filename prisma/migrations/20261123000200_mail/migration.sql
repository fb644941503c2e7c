-- E-mail: one confirmed address per owner, what waits to be told there, and the mails themselves.

-- `address` is confirmed; `pending_address` was asked for and gets one mail, which asks for the confirmation.
CREATE TABLE email_addresses (
  owner_id TEXT PRIMARY KEY REFERENCES owners (id) ON DELETE CASCADE,
  address TEXT CHECK (length(address) <= 254),
  confirmed_at TIMESTAMPTZ(6),
  pending_address TEXT CHECK (length(pending_address) <= 254),
  digest TEXT NOT NULL CHECK (digest IN ('hourly', 'daily', 'off')),
  urgent TEXT[] NOT NULL CHECK (cardinality(urgent) <= 40),
  next_digest_at TIMESTAMPTZ(6) NOT NULL,
  -- Nothing is sent any more: its reader unsubscribed, or its server refused it for days.
  stopped_at TIMESTAMPTZ(6),
  stopped_reason TEXT CHECK (stopped_reason IN ('unsubscribed', 'refused')),
  failing_since TIMESTAMPTZ(6),
  refusals INTEGER NOT NULL DEFAULT 0,
  last_error TEXT CHECK (length(last_error) <= 300),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT email_addresses_confirmed CHECK ((address IS NULL) = (confirmed_at IS NULL)),
  CONSTRAINT email_addresses_names_one CHECK (address IS NOT NULL OR pending_address IS NOT NULL),
  CONSTRAINT email_addresses_stopped CHECK ((stopped_at IS NULL) = (stopped_reason IS NULL))
);
CREATE INDEX email_addresses_digest_idx ON email_addresses (next_digest_at);

-- What was told and is in no mail yet: written with the notification (purser_mail_waits), gone with its mail. Without a
-- foreign key: payments of one owner would all lock the row it names.
CREATE TABLE mail_waiting (
  owner_id TEXT NOT NULL,
  notification_id TEXT NOT NULL,
  urgent BOOLEAN NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (owner_id, notification_id)
);
CREATE INDEX mail_waiting_urgent_idx ON mail_waiting (owner_id) WHERE urgent;
CREATE INDEX mail_waiting_created_at_idx ON mail_waiting (created_at);

-- A mail as it will be, whenever it is sent: its Message-ID is its id. Claimed by moving `next_attempt_at` ahead.
CREATE TABLE mails (
  id TEXT PRIMARY KEY CHECK (id ~ '^eml_[0-9a-z]{26}$'),
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  address TEXT NOT NULL CHECK (length(address) <= 254),
  kind TEXT NOT NULL CHECK (kind IN ('confirmation', 'urgent', 'digest', 'address')),
  content JSONB NOT NULL,
  status TEXT NOT NULL DEFAULT 'waiting' CHECK (status IN ('waiting', 'sent', 'refused', 'given_up')),
  -- Whose confirmations are counted together: the same mailbox in other spellings is the same.
  mailbox TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  last_error TEXT CHECK (length(last_error) <= 300),
  next_attempt_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  sent_at TIMESTAMPTZ(6),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT mails_sent_has_time CHECK ((status = 'sent') = (sent_at IS NOT NULL)),
  CONSTRAINT mails_confirmation_has_mailbox CHECK ((kind = 'confirmation') = (mailbox IS NOT NULL))
);
CREATE INDEX mails_due_idx ON mails (next_attempt_at) WHERE status = 'waiting';
CREATE INDEX mails_owner_idx ON mails (owner_id, kind, created_at);
CREATE INDEX mails_mailbox_idx ON mails (mailbox, created_at) WHERE kind = 'confirmation';
CREATE INDEX mails_created_at_idx ON mails (created_at);

-- What a link of a mail carries, by its hash: made for each attempt to send, so that no store holds it.
CREATE TABLE mail_tokens (
  hash BYTEA PRIMARY KEY CHECK (length(hash) = 32),
  purpose TEXT NOT NULL CHECK (purpose IN ('confirm', 'unsubscribe')),
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  address TEXT NOT NULL CHECK (length(address) <= 254),
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  expires_at TIMESTAMPTZ(6) NOT NULL
);
CREATE INDEX mail_tokens_owner_idx ON mail_tokens (owner_id);
CREATE INDEX mail_tokens_expires_at_idx ON mail_tokens (expires_at);
