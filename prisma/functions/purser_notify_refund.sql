-- Notifies a merchant of the outcome of a refund that its wallet signed, in the transaction of that outcome. A merchant of
-- another cell has no account here, or none any more: its cell is left the notification.
CREATE FUNCTION purser_notify_refund() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  v_type CONSTANT TEXT := CASE NEW.status WHEN 'settled' THEN 'refund.settled' ELSE 'refund.failed' END;
  v_refund RECORD;
BEGIN
  FOR v_refund IN
    SELECT o.id AS owner_id, r.id, jsonb_strip_nulls(jsonb_build_object(
             'refundId', r.id, 'settlementId', r.settlement_id, 'status', CASE NEW.status WHEN 'settled' THEN 'settled' ELSE 'failed' END,
             'network', 'eip155:' || NEW.chain_id, 'asset', NEW.asset, 'payer', NEW.to_address, 'amount', purser_usdc(r.value),
             'txHash', NEW.tx_hash, 'errorReason', NEW.error_reason,
             'corrected', CASE WHEN NEW.corrected_at IS NOT NULL THEN TRUE END)) AS data
      FROM refunds r
      LEFT JOIN owners o ON o.id = r.owner_id AND o.moved_at IS NULL
     WHERE r.from_address = NEW.from_address AND r.chain_id = NEW.chain_id AND r.asset = NEW.asset AND r.nonce = NEW.nonce
  LOOP
    IF v_refund.owner_id IS NOT NULL THEN
      PERFORM purser_notify(v_refund.owner_id, v_type, NULL, v_refund.id, v_refund.data);
    ELSE
      PERFORM purser_notify_cells(NEW.from_address, NEW.chain_id, v_type, v_refund.id, v_refund.data);
    END IF;
  END LOOP;
  RETURN NULL;
END;
$$;
CREATE TRIGGER refunds_notify AFTER UPDATE OF status ON settlements FOR EACH ROW
  WHEN (NEW.kind = 'refund' AND OLD.status <> NEW.status AND NEW.status IN ('settled', 'failed', 'expired'))
  EXECUTE FUNCTION purser_notify_refund();
