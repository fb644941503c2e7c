-- Sets the class of a new settlement, the lane it is bound to, and its position in the queue (start-time fair queueing): now
-- where nothing of its payer or for its payee is queued, else one step after the last queued one. The flood of one payer, or to
-- one payee, is thus spread over time, and others go ahead of its rest. It reads the ends of two indexes and locks nothing: two
-- settlements that arrive at the same moment may get the same position, which is harmless.
CREATE FUNCTION purser_queue_position() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  step CONSTANT INTERVAL := interval '1 second';
  my_class CONSTANT SMALLINT := CASE NEW.kind WHEN 'withdrawal' THEN 0 WHEN 'facilitated' THEN 2 WHEN 'refund' THEN 2 ELSE 1 END;
BEGIN
  NEW.class := my_class;
  NEW.only_lane := NEW.terms->>'facilitator';
  NEW.turn := clock_timestamp();
  -- Gas that an agent's payment reserved moves to its settlement. An allowance reserves its own; a withdrawal from a channel, which
  -- is no payment, reserves none.
  IF NEW.kind = 'allowance' THEN
    SELECT ARRAY['agents', 'owner:' || a.owner_id] INTO NEW.gas_accounts FROM agents a WHERE a.id = NEW.agent_id;
    NEW.gas_accounts := coalesce(NEW.gas_accounts, '{}');
  ELSIF NEW.agent_id IS NOT NULL THEN
    SELECT p.gas_hold, CASE my_class WHEN 0 THEN ARRAY['withdrawals', 'withdrawer:' || a.owner_id]
                                     ELSE ARRAY['agents', 'owner:' || a.owner_id] END
      INTO NEW.gas_hold, NEW.gas_accounts
      FROM agents a LEFT JOIN payments p ON p.agent_id = a.id AND p.id = NEW.id WHERE a.id = NEW.agent_id;
    NEW.gas_hold := coalesce(NEW.gas_hold, 0);
    NEW.gas_accounts := coalesce(NEW.gas_accounts, '{}');
  END IF;
  IF my_class = 0 THEN
    RETURN NEW;
  END IF;
  -- Sent alone: a third-party payer that made a batch fail before, and a settlement that only one account may send. Agents' keys are ours.
  -- Only the first settlement of each payer waits behind those of its payee: others do not wait for all of a flooding payer's.
  -- One statement: each query by itself costs as much as the read.
  SELECT CASE WHEN my_class <> 2 THEN NEW.solo
              ELSE coalesce(NEW.terms ? 'facilitator', FALSE) OR EXISTS (SELECT 1 FROM lane_offenders o
                WHERE o.chain_id = NEW.chain_id AND o.payer = NEW.from_address AND o.until > clock_timestamp()) END,
         own.turn IS NULL,
         greatest(clock_timestamp(), step + CASE WHEN own.turn IS NOT NULL THEN own.turn ELSE (
           SELECT s.turn FROM settlements s
            WHERE s.chain_id = NEW.chain_id AND s.class = my_class AND s.to_address = NEW.to_address
              AND s.status = 'queued' AND s.lane_address IS NULL AND (s.relay OR s.cancel_signature IS NOT NULL)
              AND s.leads
            ORDER BY s.turn DESC LIMIT 1) END)
    INTO NEW.solo, NEW.leads, NEW.turn
    FROM (SELECT (
           SELECT s.turn FROM settlements s
            WHERE s.chain_id = NEW.chain_id AND s.class = my_class AND s.from_address = NEW.from_address
              AND s.status = 'queued' AND s.lane_address IS NULL AND (s.relay OR s.cancel_signature IS NOT NULL)
            ORDER BY s.turn DESC LIMIT 1) AS turn OFFSET 0) AS own;
  RETURN NEW;
END;
$$;
CREATE TRIGGER settlements_queue_position BEFORE INSERT ON settlements FOR EACH ROW
  EXECUTE FUNCTION purser_queue_position();
