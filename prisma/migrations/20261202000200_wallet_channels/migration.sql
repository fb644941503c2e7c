-- Payment channels of agents' wallets: money in escrow, from which a seller is paid by vouchers.
CREATE TABLE channels (
  agent_id TEXT NOT NULL REFERENCES agents (id),
  -- The contract's id. It is a hash of the members that follow, the wallet, the contract and the chain.
  id TEXT NOT NULL CHECK (id ~ '^0x[0-9a-f]*$' AND octet_length(id) = 66),
  chain_id BIGINT NOT NULL,
  asset TEXT NOT NULL CHECK (asset ~ '^0x[0-9a-f]*$' AND octet_length(asset) = 42),
  receiver TEXT NOT NULL CHECK (receiver ~ '^0x[0-9a-f]*$' AND octet_length(receiver) = 42),
  receiver_authorizer TEXT NOT NULL
    CHECK (receiver_authorizer ~ '^0x[0-9a-f]*$' AND octet_length(receiver_authorizer) = 42),
  withdraw_delay INTEGER NOT NULL CHECK (withdraw_delay BETWEEN 900 AND 2592000),
  -- The account that signs its vouchers, and withdraws from it: the channel's payerAuthorizer.
  signer TEXT NOT NULL CHECK (signer ~ '^0x[0-9a-f]*$' AND octet_length(signer) = 42),
  salt TEXT NOT NULL CHECK (salt ~ '^0x[0-9a-f]*$' AND octet_length(salt) = 66),
  -- open: used for payments. closing: no voucher is signed any more. closed: nothing is left in it.
  status TEXT NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'closing', 'closed')),
  -- Why it is not open. seller_broke_rules: no other channel is opened with this receiver.
  reason TEXT,
  -- The highest ceiling that was signed, and its voucher. The receiver may claim all of it.
  ceiling NUMERIC(78, 0) NOT NULL DEFAULT 0,
  voucher BYTEA CHECK (octet_length(voucher) = 65),
  -- What the receiver has charged, as far as it is known.
  charged NUMERIC(78, 0) NOT NULL DEFAULT 0,
  -- What came back to the wallet.
  returned NUMERIC(78, 0) NOT NULL DEFAULT 0 CHECK (returned >= 0),
  -- One request at a time: the payment that uses the channel, and until when its process may still be at work.
  busy_payment TEXT,
  busy_until TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  -- Where it was used last: the receiver is asked there for a refund.
  url TEXT,
  -- How often that was done, and when to look next at what became of its closing.
  refund_tries INTEGER NOT NULL DEFAULT 0,
  look_at TIMESTAMPTZ(6) NOT NULL DEFAULT '-infinity',
  created_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  used_at TIMESTAMPTZ(6) NOT NULL DEFAULT clock_timestamp(),
  closed_at TIMESTAMPTZ(6),
  PRIMARY KEY (agent_id, id),
  CONSTRAINT channels_charged_within_ceiling CHECK (charged >= 0 AND charged <= ceiling),
  CONSTRAINT channels_says_why CHECK ((status = 'open') = (reason IS NULL)),
  CONSTRAINT channels_ceiling_is_signed CHECK (ceiling = 0 OR voucher IS NOT NULL)
);
-- One open channel for each receiver and its terms.
CREATE UNIQUE INDEX channels_open_idx
  ON channels (agent_id, chain_id, asset, receiver, receiver_authorizer, withdraw_delay, signer) WHERE status = 'open';
CREATE INDEX channels_closing_idx ON channels (look_at) WHERE status = 'closing';
CREATE INDEX channels_held_idx ON channels (agent_id) WHERE status <> 'closed';
CREATE INDEX channels_distrusted_idx ON channels (agent_id, receiver) WHERE reason = 'seller_broke_rules';

-- A payment through a channel is settled without a transaction: by its voucher. Its amount is the growth of the ceiling,
-- which may be nothing. A deposit is a payment of its own, which no limit counts.
ALTER TABLE payments
  ADD COLUMN channel_id TEXT,
  ADD COLUMN ceiling NUMERIC(78, 0),
  ADD COLUMN charged NUMERIC(78, 0),
  ADD COLUMN voucher BYTEA;
-- Not validated: they allow more than those before, so every row satisfies them.
ALTER TABLE payments
  DROP CONSTRAINT payments_kind_check,
  DROP CONSTRAINT payments_settled_has_proof,
  DROP CONSTRAINT payments_signed_has_nonce,
  DROP CONSTRAINT payments_paid_is_positive,
  ADD CONSTRAINT payments_kind_check
    CHECK (kind IN ('spend', 'x402', 'withdrawal', 'incoming', 'deposit')) NOT VALID,
  ADD CONSTRAINT payments_settled_has_proof CHECK (
    status <> 'settled'
    OR (settled_at IS NOT NULL AND (tx_hash IS NOT NULL OR (voucher IS NOT NULL AND charged IS NOT NULL)))) NOT VALID,
  ADD CONSTRAINT payments_signed_has_nonce
    CHECK (status NOT IN ('submitted', 'unknown') OR nonce IS NOT NULL OR channel_id IS NOT NULL) NOT VALID,
  ADD CONSTRAINT payments_paid_is_positive
    CHECK (status = 'blocked' OR amount > 0 OR (amount = 0 AND ceiling IS NOT NULL)) NOT VALID,
  ADD CONSTRAINT payments_channel_is_whole CHECK (
    (ceiling IS NULL AND charged IS NULL AND voucher IS NULL AND (channel_id IS NULL OR kind = 'deposit'))
    OR (ceiling IS NOT NULL AND channel_id IS NOT NULL AND kind = 'x402' AND (charged IS NULL OR charged <= ceiling))) NOT VALID;
CREATE INDEX payments_deposits_idx ON payments (agent_id, channel_id) INCLUDE (amount, status) WHERE kind = 'deposit';
-- Payments of a channel whose outcome is not known yet.
CREATE INDEX payments_vouchers_idx ON payments (agent_id, channel_id) WHERE ceiling IS NOT NULL AND outstanding;
-- What a wallet has promised does not include vouchers, whose money is in the channel.
DROP INDEX payments_outstanding_idx;
CREATE INDEX payments_outstanding_idx ON payments (agent_id)
  INCLUDE (amount, counted, chain_id, created_at, counterparty, ceiling) WHERE outstanding;
