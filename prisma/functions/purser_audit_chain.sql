-- Appends the notes of a transaction to its owners' audit chains. It runs last in the transaction, when no further lock is
-- taken, and owner by owner in one order, so that two transactions cannot deadlock here. Refusals that third parties can cause
-- are recorded a few times an hour only, so that nobody can fill the audit of an owner.
CREATE FUNCTION purser_audit_chain() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  note RECORD;
  v_owner RECORD;
  v_head audit_heads%ROWTYPE;
  v_at TIMESTAMPTZ(6);
  v_body TEXT;
  v_hash BYTEA;
BEGIN
  FOR note IN
    WITH noted AS (DELETE FROM audit_notes RETURNING *) SELECT * FROM noted ORDER BY owner_id, n
  LOOP
    INSERT INTO audit_heads (owner_id) VALUES (note.owner_id) ON CONFLICT DO NOTHING;
    SELECT * INTO v_head FROM audit_heads h WHERE h.owner_id = note.owner_id FOR UPDATE;
    IF note.action LIKE '%.refused' AND 20 <= (
      SELECT count(*) FROM audit_log l
       WHERE l.owner_id = note.owner_id AND l.created_at > now() - interval '1 hour' AND l.action = note.action) THEN
      CONTINUE;
    END IF;
    -- Read under the lock: the owner may have moved to another wallet while we waited.
    SELECT o.address, o.chain_id INTO v_owner FROM owners o WHERE o.id = note.owner_id;
    -- Always later than the entry before it, even if the clock jumped: lists are in the order of the chain.
    v_at := GREATEST(clock_timestamp(), v_head.at + interval '1 microsecond');
    v_body := jsonb_build_object(
      'seq', v_head.seq + 1, 'id', note.id,
      'at', to_char(v_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
      'ownerId', note.owner_id, 'owner', v_owner.address, 'ownerChainId', v_owner.chain_id,
      'agentId', note.agent_id, 'actor', note.actor, 'action', note.action,
      'before', note.before, 'after', note.after, 'requestId', note.request_id, 'proof', note.proof)::text;
    v_hash := purser_chain_hash(v_head.hash, v_body);
    INSERT INTO audit_log (owner_id, seq, id, agent_id, action, body, prev_hash, hash, created_at)
    VALUES (note.owner_id, v_head.seq + 1, note.id, note.agent_id, note.action, v_body, v_head.hash, v_hash, v_at);
    UPDATE audit_heads SET seq = v_head.seq + 1, hash = v_hash, at = v_at WHERE owner_id = note.owner_id;
  END LOOP;
  RETURN NULL;
END;
$$;
CREATE CONSTRAINT TRIGGER audit_noted AFTER INSERT ON audit_notes DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION purser_audit_chain();
