-- The allowlist's facts about a site and a payee that may not be paid there: whether the site is one of the agent's, the
-- expected payee at the site, and the sites at which the payee is listed. Members that do not apply are left out.
CREATE FUNCTION purser_site_facts(p_agent_id TEXT, p_payee TEXT, p_site TEXT, p_scope TEXT, p_at TIMESTAMPTZ)
RETURNS JSONB LANGUAGE sql STABLE AS $$
  SELECT jsonb_strip_nulls(jsonb_build_object(
    'site', p_site, 'seenPayee', CASE WHEN NOT paid.here AND expected.address IS NOT NULL THEN p_payee END,
    'expectedPayee', CASE WHEN NOT paid.here AND p_payee IS NOT NULL THEN expected.address END,
    'confined', CASE WHEN p_scope = 'sites' AND p_site IS NOT NULL THEN true END,
    'siteListed', CASE WHEN p_scope = 'sites' AND p_site IS NOT NULL THEN expected.address IS NOT NULL END,
    'payeeSites', CASE WHEN NOT paid.here THEN bound.sites END))
    FROM (SELECT EXISTS (SELECT FROM allowlist_entries l WHERE l.agent_id = p_agent_id AND l.address = p_payee
                            AND l.site IN ('', p_site)) AS here) paid
   CROSS JOIN (SELECT jsonb_agg(b.site ORDER BY b.site) AS sites FROM (
      SELECT l.site FROM allowlist_entries l WHERE l.agent_id = p_agent_id AND l.address = p_payee AND l.site <> ''
       ORDER BY l.site LIMIT 5) b) bound
    -- The newest entry where a site has several.
    LEFT JOIN LATERAL (
      SELECT l.address FROM allowlist_entries l
       WHERE l.agent_id = p_agent_id AND l.site = p_site AND (l.expires_at IS NULL OR l.expires_at > p_at)
       ORDER BY l.created_at DESC, l.address LIMIT 1) expected ON true;
$$;
