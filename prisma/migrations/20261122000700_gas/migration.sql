-- Gas as accounted money: who pays for the gas we buy, in USDC, and how much of a day's budget each has left.
-- Amounts are in units of 10^-18 USDC, as Arc's own coin counts: a unit of gas may cost less than an atomic unit.

-- What each may use in 24 hours, by the first part of an account's name. Written by every process at its start.
CREATE TABLE gas_limits (
  chain_id BIGINT NOT NULL,
  name TEXT NOT NULL CHECK (length(name) <= 40),
  per_day NUMERIC(78, 0) NOT NULL CHECK (per_day >= 0),
  PRIMARY KEY (chain_id, name)
);

-- Buckets, as those of the request limits, that hold a day's budget and refill evenly. Unlike them this is money: it
-- survives a crash. full_at: when the bucket is full again. held: promised to work whose cost no receipt has told yet.
-- used: what receipts told, since ever.
CREATE TABLE gas_accounts (
  chain_id BIGINT NOT NULL,
  -- `strangers`, `merchants`, `agents`, `withdrawals`, `house`; `payer:0x...`, `payee:0x...`, `merchant:...`,
  -- `owner:own_...`, `withdrawer:own_...`; and, counted in cancellations, `cancels:own_...:0x...`.
  account TEXT NOT NULL CHECK (length(account) <= 200),
  full_at TIMESTAMPTZ(6) NOT NULL,
  held NUMERIC(78, 0) NOT NULL DEFAULT 0,
  used NUMERIC(78, 0) NOT NULL DEFAULT 0,
  -- The day (UTC) it last changed: strangers are forgotten by it. A day, so that most updates change no index.
  used_on DATE NOT NULL DEFAULT (now() AT TIME ZONE 'UTC')::date,
  PRIMARY KEY (chain_id, account)
) WITH (fillfactor = 60);
CREATE INDEX gas_accounts_used_on_idx ON gas_accounts (used_on);

-- Who pays for it, and what was set aside when it was accepted. A transaction of ours takes that over.
ALTER TABLE settlements
  ADD COLUMN gas_accounts TEXT[] NOT NULL DEFAULT '{}',
  ADD COLUMN gas_hold NUMERIC(78, 0) NOT NULL DEFAULT 0 CHECK (gas_hold >= 0);
ALTER TABLE payments ADD COLUMN gas_hold NUMERIC(78, 0) NOT NULL DEFAULT 0 CHECK (gas_hold >= 0);
ALTER TABLE settlement_transactions ADD COLUMN gas_hold NUMERIC(78, 0) NOT NULL DEFAULT 0 CHECK (gas_hold >= 0);
-- gas_cost: what it cost by its receipt, charged to those it carried; null while that is not known.
ALTER TABLE relayer_transactions DROP COLUMN metered_gas, DROP COLUMN metered_day, ADD COLUMN gas_cost NUMERIC(78, 0);
DROP TABLE relayer_gas_days;
