-- How an entry of a chain hangs on the one before it: the owners' audits and the operators'. check-an-audit.md says the same.
CREATE FUNCTION purser_chain_hash(before BYTEA, body TEXT) RETURNS BYTEA LANGUAGE sql IMMUTABLE AS $$
  SELECT sha256(before || convert_to(body, 'UTF8'));
$$;
