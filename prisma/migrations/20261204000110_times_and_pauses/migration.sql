-- The hours and days on which an agent pays, and the rules that pause it. Null is not set, so the build before can insert rows.
ALTER TABLE agents
  ADD COLUMN pay_hours TEXT CHECK (pay_hours ~ '^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$'),
  ADD COLUMN pay_days TEXT CHECK (pay_days ~ '^(mon|tue|wed|thu|fri|sat|sun)(,(mon|tue|wed|thu|fri|sat|sun))*$'),
  ADD COLUMN pause_after_failures INTEGER CHECK (pause_after_failures BETWEEN 1 AND 1000000),
  ADD COLUMN pause_at_rate INTEGER CHECK (pause_at_rate BETWEEN 2 AND 1000000);
