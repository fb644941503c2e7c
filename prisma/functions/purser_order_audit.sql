-- Every order that an owner signed is in the owner's audit, whoever sent it: by its digest, since a policy may list a thousand
-- payees and stays in owner_orders. A move to another wallet is in two owners' audits with two signatures, and is noted where
-- it is made.
CREATE FUNCTION purser_order_audit() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO audit_notes (owner_id, agent_id, actor, action, after, proof)
  SELECT o.id, NULLIF(NEW.agent_id, ''), o.address,
         CASE NEW.kind WHEN 'AgentPolicy' THEN 'policy.signed' WHEN 'IssueKey' THEN 'key.signed'
                       WHEN 'ApprovePayment' THEN 'payment.approved' WHEN 'SecondWallet' THEN 'second.named'
                       WHEN 'Passkeys' THEN 'passkeys.signed' WHEN 'PayoutAddress' THEN 'payout.named'
                       WHEN 'Resume' THEN 'resume.signed'
                       WHEN 'AllowPayeeAgain' THEN 'allow_again.signed'
                       WHEN 'Budget' THEN 'budget.signed'
                       WHEN 'Members' THEN 'members.signed'
                       ELSE 'order.signed' END,
         jsonb_strip_nulls(jsonb_build_object('version', NEW.version, 'nonce', NEW.nonce)),
         jsonb_build_object('kind', 'order', 'digest', NEW.digest, 'signers', jsonb_build_array(jsonb_build_object(
           'signer', o.address, 'chainId', o.chain_id, 'signature', '0x' || encode(NEW.signature, 'hex'))))
    FROM owners o WHERE o.id = NEW.owner_id;
  RETURN NULL;
END;
$$;
CREATE TRIGGER orders_used AFTER UPDATE OF used_at ON owner_orders FOR EACH ROW
  WHEN (OLD.used_at IS NULL AND NEW.used_at IS NOT NULL AND NEW.kind <> 'MoveOwner') EXECUTE FUNCTION purser_order_audit();
CREATE TRIGGER orders_inserted AFTER INSERT ON owner_orders FOR EACH ROW
  WHEN (NEW.used_at IS NOT NULL AND NEW.kind <> 'MoveOwner') EXECUTE FUNCTION purser_order_audit();
