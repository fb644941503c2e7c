-- The hash that links an audit entry to the one before it, for the owners' audits and the operators'.
-- docs/how-to/check-an-audit.md describes the same.
CREATE FUNCTION purser_chain_hash(before BYTEA, body TEXT) RETURNS BYTEA LANGUAGE sql IMMUTABLE AS $$
  SELECT sha256(before || convert_to(body, 'UTF8'));
$$;
