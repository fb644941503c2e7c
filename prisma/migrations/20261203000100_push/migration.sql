-- Web push: the devices of an owner, and what waits to be sent to them. An index for the list of one agent's notifications, and
-- the event that an owner has a new unread notification.

CREATE TABLE push_devices (
  id TEXT PRIMARY KEY CHECK (id ~ '^psh_[0-9a-z]{26}$'),
  owner_id TEXT NOT NULL REFERENCES owners (id) ON DELETE CASCADE,
  -- The session that switched it on last: it ends with it, unless that session only expires.
  session_id TEXT NOT NULL,
  endpoint TEXT NOT NULL CHECK (length(endpoint) <= 2000),
  -- SHA-256 of the endpoint: a browser recognizes itself by it.
  endpoint_hash BYTEA NOT NULL UNIQUE CHECK (length(endpoint_hash) = 32),
  -- The browser's public key and shared secret (RFC 8291). Nobody can send with them without our VAPID key.
  p256dh TEXT NOT NULL CHECK (length(p256dh) <= 100),
  auth TEXT NOT NULL CHECK (length(auth) <= 40),
  label TEXT NOT NULL CHECK (length(label) <= 80),
  types TEXT[] NOT NULL CHECK (cardinality(types) BETWEEN 1 AND 40),
  -- Failures in a row, since when, the last one, and when the device is tried again.
  failures INTEGER NOT NULL DEFAULT 0,
  failing_since TIMESTAMPTZ(6),
  last_error TEXT CHECK (length(last_error) <= 500),
  retry_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  delivered_at TIMESTAMPTZ(6),
  -- How many messages were sent since when: at most some in a minute.
  minute_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  minute_sent INTEGER NOT NULL DEFAULT 0,
  -- One process sends to a device at a time.
  leased_until TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT push_devices_failures_have_since CHECK ((failures = 0) = (failing_since IS NULL))
);
CREATE INDEX push_devices_owner_idx ON push_devices (owner_id, created_at DESC, id DESC);
CREATE INDEX push_devices_session_id_idx ON push_devices (session_id);

-- Written with the notification (purser_push_enqueue), deleted when it is sent or a day old. Without a foreign key: an event must
-- not wait for a device that is being removed.
CREATE TABLE push_waiting (
  device_id TEXT NOT NULL,
  owner_id TEXT NOT NULL,
  notification_id TEXT NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  due_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (device_id, notification_id)
);
CREATE INDEX push_waiting_due_idx ON push_waiting (due_at);

CREATE INDEX notifications_agent_idx ON notifications (owner_id, agent_id, created_at DESC, id DESC) WHERE agent_id IS NOT NULL;

ALTER TABLE events DROP CONSTRAINT events_type_check;
ALTER TABLE events ADD CONSTRAINT events_type_check
  CHECK (type IN ('payment', 'agent', 'session', 'alarm', 'notification') OR type LIKE 'approval.%');
