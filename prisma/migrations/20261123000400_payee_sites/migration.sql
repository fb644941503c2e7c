-- A payee stands on the list once for each site it may be paid at, and once for everywhere ('').
ALTER TABLE allowlist_entries DROP CONSTRAINT allowlist_entries_pkey;
ALTER TABLE allowlist_entries ADD PRIMARY KEY (agent_id, address, site);
-- Who is paid at a site, and whether it is one of the agent's.
CREATE INDEX allowlist_entries_site_idx ON allowlist_entries (agent_id, site);
