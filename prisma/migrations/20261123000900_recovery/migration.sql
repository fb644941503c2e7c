-- A second wallet, named by the owner in a signed order, and the move of everything to it.

ALTER TABLE owner_orders
  DROP CONSTRAINT owner_orders_kind_check,
  ADD CONSTRAINT owner_orders_kind_check
    CHECK (kind IN ('AgentPolicy', 'IssueKey', 'ApprovePayment', 'SecondWallet', 'MoveOwner')),
  -- Of a move, which both wallets sign.
  ADD COLUMN second_signature BYTEA;
-- The newest of them is in force.
CREATE INDEX owner_orders_second_idx ON owner_orders (owner_id, used_at DESC)
  WHERE kind = 'SecondWallet' AND used_at IS NOT NULL;

-- Whose wallet signed in, where it is the owner's second one: such a session tightens, and withdraws to the owner.
ALTER TABLE sessions
  ADD COLUMN second_address TEXT CHECK (second_address ~ '^0x[0-9a-f]{40}$'),
  ADD COLUMN second_chain_id BIGINT,
  ADD CONSTRAINT sessions_second_is_whole CHECK ((second_address IS NULL) = (second_chain_id IS NULL));
