-- Notifies a team of an order that waits for its members' signatures, and of its end; and each person whose signature counts, in the
-- person's own account. Nothing is decided by opening a notification.
CREATE FUNCTION purser_notify_waiting() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  w CONSTANT waiting_orders := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
  v_name CONSTANT TEXT := (SELECT left(o.team_name, 60) FROM owners o WHERE o.id = w.team_id);
  v_team CONSTANT TEXT := (SELECT o.address FROM owners o WHERE o.id = w.team_id);
  v_data JSONB;
BEGIN
  -- Open pages of the team read again.
  PERFORM purser_emit(w.team_id, 'owner', NULL, w.team_id);
  IF TG_OP = 'UPDATE' AND NEW.end_reason IS NOT DISTINCT FROM OLD.end_reason THEN
    RETURN NULL;
  END IF;
  IF TG_OP = 'DELETE' AND OLD.end_reason IS NOT NULL THEN
    RETURN NULL;
  END IF;
  v_data := jsonb_build_object('orderId', w.id, 'kind', w.kind, 'by', w.member, 'team', v_team,
    'expiresAt', to_char(w.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
    'thirdParty', jsonb_build_object('name', v_name));
  IF TG_OP = 'DELETE' AND w.expires_at > clock_timestamp() THEN
    PERFORM purser_notify(w.team_id, 'order.carried_out', NULL, w.id, v_data);
  ELSIF TG_OP <> 'INSERT' THEN
    PERFORM purser_notify(w.team_id, 'order.ended', NULL, w.id,
      v_data || jsonb_build_object('reason', coalesce(w.end_reason, 'expired')));
  ELSE
    PERFORM purser_notify(w.team_id, 'order.waiting', NULL, w.id, v_data);
    PERFORM purser_notify(o.id, 'order.waiting', NULL, w.id, v_data)
       FROM team_members m JOIN owners o ON o.address = m.address AND o.chain_id = m.chain_id
      WHERE m.team_id = w.team_id AND m.address <> w.member
        AND (m.role = 'admin' OR (m.role = 'approver' AND w.kind = 'ApprovePayment'));
    -- Who would decide with the new list, and does not yet.
    PERFORM purser_notify(o.id, 'team.invited', NULL, w.id, v_data || jsonb_build_object('role', e ->> 'role'))
       FROM jsonb_array_elements(CASE WHEN w.kind = 'Members' THEN w.document -> 'members' ELSE '[]' END) AS e
       JOIN owners o ON o.address = lower(e ->> 'account') AND o.chain_id::text = e ->> 'chain'
      WHERE e ->> 'role' <> 'viewer' AND o.address <> w.member
        AND NOT EXISTS (SELECT 1 FROM team_members m
                         WHERE m.team_id = w.team_id AND m.address = o.address AND m.role <> 'viewer');
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER waiting_notify AFTER INSERT OR DELETE OR UPDATE OF signature, end_reason ON waiting_orders FOR EACH ROW
  EXECUTE FUNCTION purser_notify_waiting();
