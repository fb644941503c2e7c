-- No key or connection is created while the owner has stopped everything, whichever build writes it.
CREATE FUNCTION purser_key_while_stopped() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  PERFORM purser_assert_not_stopped(a.owner_id) FROM agents a WHERE a.id = NEW.agent_id;
  RETURN NEW;
END;
$$;
CREATE TRIGGER api_keys_while_stopped BEFORE INSERT ON api_keys FOR EACH ROW EXECUTE FUNCTION purser_key_while_stopped();
