-- Which scheme an authorization is of, and what it is beside the columns all have: NULL is EIP-3009. Permit2 counts
-- nonces of its own, shared by all who spend through it: they stand apart by their prefix.
ALTER TABLE settlements ADD COLUMN terms JSONB CHECK (terms ? 'scheme');
ALTER TABLE settlements DROP CONSTRAINT settlements_nonce_check;
ALTER TABLE settlements
  ADD CONSTRAINT settlements_nonce_check CHECK (nonce ~ '^(permit2:)?0x[0-9a-f]{64}$'),
  ADD CONSTRAINT settlements_nonce_is_its_schemes CHECK ((terms IS NULL) = (nonce ~ '^0x'));
