-- What a seller signed of its offer and of what it delivered (the extension offer-and-receipt), and what we found of it.
ALTER TABLE payments ADD COLUMN evidence JSONB
  CHECK (evidence IS NULL OR (status <> 'blocked' AND octet_length(evidence::text) <= 20480));

-- A fetch that the seller let in by the wallet's signature for an earlier payment: nothing was paid.
ALTER TABLE fetches ADD COLUMN signed_in BOOLEAN NOT NULL DEFAULT FALSE;
