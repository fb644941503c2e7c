-- Takes a number of bytes from an owner's daily quota, which refills evenly, and returns null; or takes nothing and returns
-- when that many will be free. With p_dry_run it only checks. The row stays locked until the transaction ends: replicas decide
-- one after the other, and a rollback returns the bytes.
CREATE FUNCTION purser_quota_take(p_owner_id TEXT, p_bytes BIGINT, p_day_bytes BIGINT, p_dry_run BOOLEAN)
RETURNS TIMESTAMPTZ LANGUAGE plpgsql AS $$
DECLARE
  step CONSTANT INTERVAL := interval '24 hours' * (p_bytes::double precision / p_day_bytes);
  full_from TIMESTAMPTZ;
BEGIN
  IF NOT p_dry_run THEN
    INSERT INTO owner_quotas AS q (owner_id, full_at) VALUES (p_owner_id, clock_timestamp() + step)
    ON CONFLICT (owner_id) DO UPDATE SET full_at = greatest(q.full_at, clock_timestamp()) + step
     WHERE greatest(q.full_at, clock_timestamp()) + step <= clock_timestamp() + interval '24 hours';
    IF FOUND THEN
      RETURN NULL;
    END IF;
  END IF;
  SELECT q.full_at INTO full_from FROM owner_quotas q WHERE q.owner_id = p_owner_id;
  RETURN CASE WHEN NOT p_dry_run OR full_from + step > clock_timestamp() + interval '24 hours'
    THEN full_from + step - interval '24 hours' END;
END;
$$;
