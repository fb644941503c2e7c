#!/bin/bash
# A copy of the primary that follows it. To take over: `pg_ctl promote`, and point DATABASE_URL here (docs/operations/standby.md).
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  PGPASSWORD=$(cat /run/secrets/replication_password)
  export PGPASSWORD
  # Beside its place until it is whole: a copy that was broken off would be taken for a database.
  copy=(--pgdata="$PGDATA.new" --wal-method=stream --checkpoint=fast --write-recovery-conf --slot=standby
    --dbname="host=${PRIMARY_HOST:-postgres-primary} port=${PRIMARY_PORT:-5432} user=replicator application_name=standby")
  # The slot keeps the log that the standby has not read; the primary bounds it. A standby before this one may have left it.
  mkdir -p "$(dirname "$PGDATA")"
  rm -rf "$PGDATA.new"
  pg_basebackup "${copy[@]}" --create-slot || { rm -rf "$PGDATA.new"; pg_basebackup "${copy[@]}"; }
  chmod 0700 "$PGDATA.new"
  rm -rf "$PGDATA"
  mv "$PGDATA.new" "$PGDATA"
  unset PGPASSWORD
fi
exec postgres -c hot_standby=on
