-- Notifies a merchant of the outcome of a refund that its wallet signed, in the transaction of that outcome. A merchant of
-- another cell has no account here.
CREATE FUNCTION purser_notify_refund() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  PERFORM purser_notify(r.owner_id, CASE NEW.status WHEN 'settled' THEN 'refund.settled' ELSE 'refund.failed' END,
      NULL, r.id, jsonb_strip_nulls(jsonb_build_object(
        'refundId', r.id, 'settlementId', r.settlement_id, 'status', CASE NEW.status WHEN 'settled' THEN 'settled' ELSE 'failed' END,
        'network', 'eip155:' || NEW.chain_id, 'asset', NEW.asset, 'payer', NEW.to_address, 'amount', purser_usdc(r.value),
        'txHash', NEW.tx_hash, 'errorReason', NEW.error_reason,
        'corrected', CASE WHEN NEW.corrected_at IS NOT NULL THEN TRUE END)))
     FROM refunds r
    WHERE r.from_address = NEW.from_address AND r.chain_id = NEW.chain_id AND r.asset = NEW.asset AND r.nonce = NEW.nonce
      AND r.owner_id IS NOT NULL;
  RETURN NULL;
END;
$$;
CREATE TRIGGER refunds_notify AFTER UPDATE OF status ON settlements FOR EACH ROW
  WHEN (NEW.kind = 'refund' AND OLD.status <> NEW.status AND NEW.status IN ('settled', 'failed', 'expired'))
  EXECUTE FUNCTION purser_notify_refund();
