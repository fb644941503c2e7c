-- The version of the policy document that the sealed rules need. A release that does not know it refuses to sign, by name.
-- Builds that do not know the column seal rules of version 1.
ALTER TABLE agent_wallets ADD COLUMN rules_version SMALLINT NOT NULL DEFAULT 1 CHECK (rules_version > 0);
