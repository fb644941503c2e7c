-- The passkey that opened a session: the session ends when the passkey is removed. NULL: a wallet opened it.
ALTER TABLE sessions ADD COLUMN passkey_id TEXT;
