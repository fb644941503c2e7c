-- A payment through a channel can end without its charge: the receiver charged some of several payments whose responses were
-- lost, and nothing shows which.
-- Not validated: it allows more than the one before, so every row satisfies it.
ALTER TABLE payments
  DROP CONSTRAINT payments_settled_has_proof,
  ADD CONSTRAINT payments_settled_has_proof CHECK (
    status <> 'settled'
    OR (settled_at IS NOT NULL
        AND (tx_hash IS NOT NULL
             OR (voucher IS NOT NULL
                 AND (charged IS NOT NULL OR failure_code IS NOT DISTINCT FROM 'charge_not_known'))))) NOT VALID;
