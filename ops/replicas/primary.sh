#!/bin/bash
# Run once by the Postgres image, when it makes the database: a role for the standby, and that a commit waits for it.
set -euo pipefail
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
  -v password="$(cat /run/secrets/replication_password)" <<'SQL'
CREATE ROLE replicator REPLICATION LOGIN PASSWORD :'password';
-- In force from the next start on: here nobody would ever confirm. When the standby is gone for good, commits wait until
-- ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf();
ALTER SYSTEM SET synchronous_standby_names = 'standby';
SQL
echo "host replication replicator all scram-sha-256" >>"$PGDATA/pg_hba.conf"
