-- A channel whose money or vouchers change is compared with the chain within ten minutes. While it is used, the comparison itself
-- keeps to that (server/plugins/reconciliation/channels-store.ts), so that a voucher seldom changes the index.
CREATE FUNCTION purser_channel_proof() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  NEW.prove_at := clock_timestamp() + interval '10 minutes';
  RETURN NEW;
END;
$$;
CREATE TRIGGER channels_proof BEFORE UPDATE OF status, ceiling, returned ON channels FOR EACH ROW
  WHEN (NEW.prove_at > clock_timestamp() + interval '10 minutes') EXECUTE FUNCTION purser_channel_proof();
