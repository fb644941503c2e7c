#!/bin/bash
# Run once by the Postgres image when it creates the database: creates a role for the standby, and makes each
# commit wait for it.
set -euo pipefail
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
  -v password="$(cat /run/secrets/replication_password)" <<'SQL'
CREATE ROLE replicator REPLICATION LOGIN PASSWORD :'password';
-- Takes effect at the next start, because during this setup no standby could confirm. If the standby is lost
-- for good, commits wait until ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf();
ALTER SYSTEM SET synchronous_standby_names = 'standby';
SQL
echo "host replication replicator all scram-sha-256" >>"$PGDATA/pg_hba.conf"
