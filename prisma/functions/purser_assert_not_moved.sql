-- Fails if the owner moves or has moved to another cell. Keeps the owner's row from being marked until this transaction ends: a move
-- takes that row, and no other, FOR UPDATE. So whatever calls this is copied, or refused.
CREATE FUNCTION purser_assert_not_moved(p_owner_id TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_owner RECORD;
BEGIN
  SELECT o.moved_to, o.moved_url INTO v_owner FROM owners o WHERE o.id = p_owner_id FOR KEY SHARE;
  IF v_owner.moved_to IS NOT NULL THEN
    RAISE EXCEPTION 'the owner is in the cell % at %', v_owner.moved_to, v_owner.moved_url USING ERRCODE = 'PU007';
  END IF;
END;
$$;
