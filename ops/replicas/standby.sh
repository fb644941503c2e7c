#!/bin/bash
# A standby that follows the primary. To fail over: `pg_ctl promote`, and point DATABASE_URL here
# (docs/operations/standby.md).
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  PGPASSWORD=$(cat /run/secrets/replication_password)
  export PGPASSWORD
  # Copied beside its final place until it is complete, because an interrupted copy there would be taken for a
  # database.
  copy=(--pgdata="$PGDATA.new" --wal-method=stream --checkpoint=fast --write-recovery-conf --slot=standby
    --dbname="host=${PRIMARY_HOST:-postgres-primary} port=${PRIMARY_PORT:-5432} user=replicator application_name=standby")
  # The slot keeps the WAL that the standby has not read; the primary limits its size. An earlier standby may
  # have left the slot behind.
  mkdir -p "$(dirname "$PGDATA")"
  rm -rf "$PGDATA.new"
  pg_basebackup "${copy[@]}" --create-slot || { rm -rf "$PGDATA.new"; pg_basebackup "${copy[@]}"; }
  chmod 0700 "$PGDATA.new"
  rm -rf "$PGDATA"
  mv "$PGDATA.new" "$PGDATA"
  unset PGPASSWORD
fi
exec postgres -c hot_standby=on
