-- Notifies the owner at 80 % and 100 % of the daily limit: once each time they are crossed, and again only after the sum was
-- below 70 %, or a day later. The trigger's condition needs no function call, since every reservation passes here.
CREATE FUNCTION purser_notify_limit() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  v_share SMALLINT;
BEGIN
  v_share := CASE WHEN NEW.window_sum >= NEW.daily_limit THEN 100
                  WHEN NEW.window_sum * 10 >= NEW.daily_limit * 8 THEN 80 ELSE 0 END;
  IF v_share = 0 THEN
    NEW.limit_told := 0;
    RETURN NEW;
  END IF;
  NEW.limit_told := v_share;
  NEW.limit_told_at := clock_timestamp();
  PERFORM purser_notify(NEW.owner_id, 'agent.limit_reached', NEW.id, NEW.id, jsonb_build_object(
    'agentId', NEW.id, 'percent', v_share, 'limit', purser_usdc(NEW.daily_limit),
    'spent', purser_usdc(NEW.window_sum), 'window', '24h'));
  RETURN NEW;
END;
$$;
CREATE TRIGGER agents_limit_notify BEFORE UPDATE OF window_sum, daily_limit ON agents FOR EACH ROW
  WHEN (NEW.daily_limit > 0 AND (
    (NEW.window_sum * 10 >= NEW.daily_limit * 8 AND (NEW.limit_told < 80
       OR (NEW.limit_told < 100 AND NEW.window_sum >= NEW.daily_limit)
       OR NEW.limit_told_at < now() - interval '24 hours'))
    OR (NEW.limit_told > 0 AND NEW.window_sum * 10 < NEW.daily_limit * 7)))
  EXECUTE FUNCTION purser_notify_limit();
