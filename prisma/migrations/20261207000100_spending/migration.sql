-- What moved, by the time at which it moved: sums and exports of a month.
CREATE INDEX payments_moved_idx ON payments (agent_id, settled_at, id) WHERE status = 'settled';
