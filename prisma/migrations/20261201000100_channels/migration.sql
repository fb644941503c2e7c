-- What is settled for payment channels: a deposit by the token's nonce, and claims, settles and refunds by a hash of what they
-- do. Not validated: it allows more than the constraint before, so every row satisfies it.
ALTER TABLE settlements
  DROP CONSTRAINT settlements_nonce_check,
  ADD CONSTRAINT settlements_nonce_check CHECK (
    nonce ~ '^(permit2:|eip2612:|channel:)?0x[0-9a-f]*$' AND octet_length(nonce) - position('0x' IN nonce) = 65) NOT VALID;
