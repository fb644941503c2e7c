-- The rule that pauses an agent when a site's price jumps. Null is not set, so the build before can insert rows.
-- A payment has its site only while the rule is set: other agents' payments are not in the index.
ALTER TABLE agents ADD COLUMN pause_on_price_jump INTEGER CHECK (pause_on_price_jump BETWEEN 2 AND 1000000);
ALTER TABLE payments ADD COLUMN site TEXT;
CREATE INDEX payments_site_idx ON payments (agent_id, site, created_at DESC)
  WHERE site IS NOT NULL AND status <> 'voided' AND failure_code IS NULL;
