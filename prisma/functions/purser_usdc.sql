-- Atomic units as a decimal amount of USDC. A product, since a quotient may lose digits.
CREATE FUNCTION purser_usdc(p_atomic NUMERIC) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
  SELECT trim_scale(p_atomic * 0.000001)::text;
$$;
