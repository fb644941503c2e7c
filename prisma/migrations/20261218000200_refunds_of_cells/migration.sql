-- A merchant whose account is in another cell has no owner here.
ALTER TABLE refunds ALTER COLUMN owner_id DROP NOT NULL;
