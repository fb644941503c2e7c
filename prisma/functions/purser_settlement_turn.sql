-- Gives a new settlement its class, the lane it is bound to, and its place in the order (start-time fair queueing): at
-- once where nothing of its payer or for its payee waits, else one step after what waits. A flood of one payer, or to
-- one payee, thus spreads over the time to come, and whoever comes later goes before its rest. Reads the ends of two
-- indexes and locks nothing: two that come at the same moment may share a turn, which harms nobody.
CREATE FUNCTION purser_settlement_turn() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
  step CONSTANT INTERVAL := interval '1 second';
  my_class CONSTANT SMALLINT := CASE NEW.kind WHEN 'withdrawal' THEN 0 WHEN 'facilitated' THEN 2 WHEN 'refund' THEN 2 ELSE 1 END;
BEGIN
  NEW.class := my_class;
  NEW.only_lane := NEW.terms->>'facilitator';
  NEW.turn := clock_timestamp();
  -- What an agent's payment set aside for gas when it was reserved goes with it. An allowance brings its own.
  IF NEW.kind = 'allowance' THEN
    SELECT ARRAY['agents', 'owner:' || a.owner_id] INTO NEW.gas_accounts FROM agents a WHERE a.id = NEW.agent_id;
    NEW.gas_accounts := coalesce(NEW.gas_accounts, '{}');
  ELSIF NEW.agent_id IS NOT NULL THEN
    SELECT p.gas_hold, CASE my_class WHEN 0 THEN ARRAY['withdrawals', 'withdrawer:' || a.owner_id]
                                     ELSE ARRAY['agents', 'owner:' || a.owner_id] END
      INTO NEW.gas_hold, NEW.gas_accounts
      FROM agents a JOIN payments p ON p.agent_id = a.id WHERE a.id = NEW.agent_id AND p.id = NEW.id;
    NEW.gas_hold := coalesce(NEW.gas_hold, 0);
    NEW.gas_accounts := coalesce(NEW.gas_accounts, '{}');
  END IF;
  IF my_class = 0 THEN
    RETURN NEW;
  END IF;
  -- Travels alone: a stranger who harmed a batch before, and what one account alone may send. Agents' keys are ours.
  -- Behind its payee's only the first of each payer: who pays a flooded payee does not wait for all of one flooder's.
  -- One statement: each by itself costs as much as what it finds.
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
CREATE TRIGGER settlements_turn BEFORE INSERT ON settlements FOR EACH ROW
  EXECUTE FUNCTION purser_settlement_turn();
