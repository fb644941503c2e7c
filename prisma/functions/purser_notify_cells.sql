-- Leaves a notification for the other cells. The payee has no account here, and one of them may have it.
CREATE FUNCTION purser_notify_cells(p_address TEXT, p_chain_id BIGINT, p_type TEXT, p_subject_id TEXT, p_data JSONB)
RETURNS VOID LANGUAGE sql AS $$
  INSERT INTO cell_notices (address, chain_id, type, subject_id, data)
  SELECT p_address, p_chain_id, p_type, p_subject_id, p_data WHERE EXISTS (SELECT 1 FROM cell_news);
$$;
