-- Agents pay through Permit2 too: its nonces stand apart by their prefix, as in settlements.
ALTER TABLE payments DROP CONSTRAINT payments_nonce_check;
ALTER TABLE payments ADD CONSTRAINT payments_nonce_check CHECK (nonce ~ '^(permit2:)?0x[0-9a-f]{64}$');
-- maximum: what was signed, where less may be charged; `amount` is that until the chain shows what was.
ALTER TABLE payments
  ADD COLUMN maximum NUMERIC(78, 0),
  ADD CONSTRAINT payments_amount_is_within_maximum CHECK (amount <= maximum);

-- What a contract may take of a wallet: the token's own permit, signed by the wallet and relayed like a payment. The
-- token counts them, so a wallet has one under way at most; it is named by its digest.
ALTER TABLE settlements DROP CONSTRAINT settlements_kind_check, DROP CONSTRAINT settlements_nonce_check;
ALTER TABLE settlements
  ADD CONSTRAINT settlements_kind_check
    CHECK (kind IN ('spend', 'x402', 'withdrawal', 'facilitated', 'allowance')),
  ADD CONSTRAINT settlements_nonce_check CHECK (nonce ~ '^(permit2:|eip2612:)?0x[0-9a-f]{64}$'),
  ADD CONSTRAINT settlements_allowance_is_its_scheme
    CHECK ((kind = 'allowance') = coalesce(terms->>'scheme' = 'allowance', FALSE));
CREATE UNIQUE INDEX settlements_one_allowance_idx ON settlements (from_address, chain_id)
  WHERE kind = 'allowance' AND status IN ('queued', 'submitted');
CREATE INDEX settlements_allowances_idx ON settlements (agent_id, chain_id, created_at DESC)
  WHERE kind = 'allowance';
