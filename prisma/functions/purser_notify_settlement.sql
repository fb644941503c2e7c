-- Notifies a merchant of payments to its address: the owner that signed in with the wallet `payTo`, in this cell or in another one.
-- A key's address is the same on every chain, a contract's only on its own chain. Failures are reported only for settlements that
-- were requested from the facilitator, and for transfers that were reported as settled and then removed for good.
-- `corrected`: an earlier notification reported another outcome.
CREATE FUNCTION purser_notify_settlement() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  v_type CONSTANT TEXT := CASE NEW.status WHEN 'settled' THEN 'settlement.settled' ELSE 'settlement.failed' END;
  v_owners CONSTANT TEXT[] := ARRAY(
    SELECT o.id FROM owners o
     WHERE o.address = NEW.to_address AND o.chain_id IN (0, NEW.chain_id) AND o.moved_at IS NULL);
  v_owner_id TEXT;
  v_data JSONB;
BEGIN
  IF NEW.kind = 'spend' AND NEW.status <> 'settled' AND NOT purser_was_settled(NEW) THEN
    RETURN NULL;
  END IF;
  IF v_owners = '{}' AND NOT EXISTS (SELECT 1 FROM cell_news) THEN
    RETURN NULL;
  END IF;
  v_data := jsonb_strip_nulls(jsonb_build_object(
    'settlementId', NEW.id, 'status', NEW.status, 'network', 'eip155:' || NEW.chain_id, 'asset', NEW.asset,
    'payer', NEW.from_address, 'payTo', NEW.to_address, 'amount', purser_usdc(NEW.value), 'nonce', NEW.nonce,
    'txHash', NEW.tx_hash, 'blockNumber', NEW.block_number::text, 'errorReason', NEW.error_reason,
    'corrected', CASE WHEN NEW.corrected_at IS NOT NULL THEN TRUE END,
    'thirdParty', CASE WHEN NEW.error_message IS NOT NULL
                       THEN jsonb_build_object('errorMessage', left(NEW.error_message, 500)) END));
  FOREACH v_owner_id IN ARRAY v_owners LOOP
    PERFORM purser_notify(v_owner_id, v_type, NULL, NEW.id, v_data);
  END LOOP;
  IF v_owners = '{}' THEN
    PERFORM purser_notify_cells(NEW.to_address, NEW.chain_id, v_type, NEW.id, v_data);
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER settlements_notify_new AFTER INSERT ON settlements FOR EACH ROW
  WHEN (NEW.status = 'settled' AND NEW.kind IN ('spend', 'x402', 'facilitated'))
  EXECUTE FUNCTION purser_notify_settlement();
CREATE TRIGGER settlements_notify AFTER UPDATE OF status ON settlements FOR EACH ROW
  WHEN (OLD.status <> NEW.status
        AND ((NEW.status = 'settled' AND NEW.kind IN ('spend', 'x402', 'facilitated'))
          OR (NEW.status IN ('failed', 'expired') AND NEW.kind IN ('x402', 'facilitated'))
          OR (NEW.status IN ('failed', 'expired') AND NEW.kind = 'spend' AND NEW.corrected_at IS NOT NULL)))
  EXECUTE FUNCTION purser_notify_settlement();
