-- Refuses what a process signed for a reservation that was released meanwhile.
CREATE FUNCTION purser_reservation_gone(p_payment_id TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the reservation of % is gone', p_payment_id USING ERRCODE = 'PU004';
END;
$$;
