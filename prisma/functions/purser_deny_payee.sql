-- Adds what an owner never pays, and waits for payments that are being decided: each is either reserved before this, or refused
-- after it. It locks the agents: then no payment locks the owner, because payments are frequent and this is rare. The owner's
-- row comes first, as in purser_stop: what makes an agent active shares it. Returns added, known (it was there before) or full.
CREATE FUNCTION purser_deny_payee(p_owner_id TEXT, p_id TEXT, p_entry TEXT, p_note TEXT, p_by TEXT, p_most INTEGER)
RETURNS TEXT LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM owners o WHERE o.id = p_owner_id FOR NO KEY UPDATE;
  IF EXISTS (SELECT 1 FROM denied_payees d WHERE d.owner_id = p_owner_id AND d.entry = p_entry) THEN
    RETURN 'known';
  END IF;
  IF (SELECT count(*) FROM denied_payees d WHERE d.owner_id = p_owner_id) >= p_most THEN
    RETURN 'full';
  END IF;
  INSERT INTO denied_payees (id, owner_id, entry, note, added_by) VALUES (p_id, p_owner_id, p_entry, p_note, p_by);
  PERFORM 1 FROM agents a WHERE a.owner_id = p_owner_id AND a.status = 'active' ORDER BY a.id FOR NO KEY UPDATE;
  PERFORM purser_emit(p_owner_id, 'owner', NULL, p_owner_id);
  RETURN 'added';
END;
$$;
