-- Live events in partitions by the number of the transaction, which grows with time and is part of the key. The old table
-- becomes the only partition, without reading a row. server/infra/event-partitions.ts divides from there on.
ALTER TABLE events RENAME TO events_first;
ALTER TABLE events_first RENAME CONSTRAINT events_pkey TO events_first_pkey;
ALTER TABLE events_created_at_idx RENAME TO events_first_created_at_idx;
CREATE TABLE events (LIKE events_first INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY RANGE (tx);
ALTER TABLE events ADD CONSTRAINT events_pkey PRIMARY KEY (owner_id, tx, seq);
CREATE INDEX events_created_at_idx ON events (created_at);
ALTER TABLE events ADD CONSTRAINT events_owner_id_fkey FOREIGN KEY (owner_id) REFERENCES owners (id) ON DELETE CASCADE;
ALTER TABLE events ATTACH PARTITION events_first DEFAULT;
