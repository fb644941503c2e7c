-- Notifies the owner of a wallet whose balance is less than a tenth of the daily limit: once, and again only after it held a
-- fifth. It uses the balance that reconciliation read; the flag is on that row, so that no agent's row is locked for it.
CREATE FUNCTION purser_notify_low_balance() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  v_agent agents%ROWTYPE;
BEGIN
  SELECT * INTO v_agent FROM agents a
   WHERE a.wallet_address = NEW.wallet AND a.network = 'eip155:' || NEW.chain_id AND a.status <> 'archived';
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF NOT NEW.low_told AND NEW.balance * 10 < v_agent.daily_limit THEN
    UPDATE ledger_balances SET low_told = TRUE WHERE chain_id = NEW.chain_id AND wallet = NEW.wallet;
    PERFORM purser_notify(v_agent.owner_id, 'agent.low_balance', v_agent.id, v_agent.id, jsonb_build_object(
      'agentId', v_agent.id, 'wallet', NEW.wallet, 'network', v_agent.network, 'balance', purser_usdc(NEW.balance),
      'below', purser_usdc(v_agent.daily_limit * 0.1)));
  ELSIF NEW.low_told AND NEW.balance * 5 >= v_agent.daily_limit THEN
    UPDATE ledger_balances SET low_told = FALSE WHERE chain_id = NEW.chain_id AND wallet = NEW.wallet;
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER balances_notify AFTER INSERT OR UPDATE OF balance ON ledger_balances FOR EACH ROW
  EXECUTE FUNCTION purser_notify_low_balance();
