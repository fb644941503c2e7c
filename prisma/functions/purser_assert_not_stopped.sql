-- Fails while the owner has stopped everything. Shares the owner's row, so a stop waits for this transaction or comes before it.
CREATE FUNCTION purser_assert_not_stopped(p_owner_id TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
  v_stopped_at TIMESTAMPTZ;
BEGIN
  SELECT o.stopped_at INTO v_stopped_at FROM owners o WHERE o.id = p_owner_id FOR SHARE;
  IF v_stopped_at IS NOT NULL THEN
    RAISE EXCEPTION 'the owner stopped everything' USING ERRCODE = 'PU006';
  END IF;
END;
$$;
