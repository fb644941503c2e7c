-- Notes how an ordered withdrawal ended; the order itself was noted with its signature when it was reserved. The actor is the
-- chain, not an address.
CREATE FUNCTION purser_withdrawal_audit() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO audit_notes (owner_id, agent_id, actor, action, after, request_id)
  SELECT a.owner_id, a.id, '0x0000000000000000000000000000000000000000', 'withdrawal.' || NEW.status,
         jsonb_build_object('paymentId', NEW.id, 'to', NEW.counterparty, 'amountAtomic', NEW.amount::text,
           'network', 'eip155:' || NEW.chain_id, 'txHash', NEW.tx_hash, 'nonce', NEW.nonce),
         NEW.request_id
    FROM agents a WHERE a.id = NEW.agent_id;
  RETURN NULL;
END;
$$;
CREATE TRIGGER withdrawals_ended AFTER UPDATE OF status ON payments FOR EACH ROW
  WHEN (NEW.kind = 'withdrawal' AND OLD.status IS DISTINCT FROM NEW.status AND NEW.status IN ('settled', 'voided'))
  EXECUTE FUNCTION purser_withdrawal_audit();
