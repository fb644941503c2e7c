#!/bin/bash
# A copy of the primary that follows it. To take over: `pg_ctl promote`, and point DATABASE_URL here (docs/operations.md).
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  PGPASSWORD=$(cat /run/secrets/replication_password)
  export PGPASSWORD
  copy=(--pgdata="$PGDATA" --wal-method=stream --checkpoint=fast --write-recovery-conf --slot=standby
    --dbname="host=${PRIMARY_HOST:-postgres-primary} port=${PRIMARY_PORT:-5432} user=replicator application_name=standby")
  # The slot keeps the log that the standby has not read; the primary bounds it. A standby before this one may have left it.
  pg_basebackup "${copy[@]}" --create-slot || pg_basebackup "${copy[@]}"
  chmod 0700 "$PGDATA"
  unset PGPASSWORD
fi
exec postgres -c hot_standby=on
