-- Stand-in.
ALTER TABLE agents
  ADD COLUMN weekly_limit NUMERIC(78, 0) CHECK (weekly_limit >= 0),
  ADD COLUMN monthly_limit NUMERIC(78, 0) CHECK (monthly_limit >= 0),
  ADD COLUMN payments_per_hour INTEGER CHECK (payments_per_hour >= 0),
  ADD COLUMN "fetch" TEXT NOT NULL DEFAULT 'any' CHECK ("fetch" IN ('any', 'sites'));
ALTER TABLE allowlist_entries
  ADD COLUMN site TEXT NOT NULL DEFAULT '',
  ADD COLUMN daily_limit NUMERIC(78, 0) CHECK (daily_limit >= 0),
  ADD COLUMN per_payment_limit NUMERIC(78, 0) CHECK (per_payment_limit >= 0),
  ADD COLUMN expires_at TIMESTAMPTZ(6);
