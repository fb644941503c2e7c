#!/bin/bash
# Makes a standby of PRIMARY_HOST where there is no database yet, and runs the command that follows it. To fail over:
# `pg_ctl promote` (docs/operations/standby.md).
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  until pg_isready -q -h "$PRIMARY_HOST"; do sleep 1; done
  PGPASSWORD=$(cat /run/secrets/replication_password)
  export PGPASSWORD
  # Copied beside its final place until it is complete, because an interrupted copy there would be taken for a
  # database.
  copy=(--pgdata="$PGDATA.new" --wal-method=stream --checkpoint=fast --write-recovery-conf --slot=standby
    --dbname="host=$PRIMARY_HOST user=replicator application_name=standby")
  # The slot keeps the WAL that the standby has not read; the primary limits its size. An earlier standby may
  # have left the slot behind.
  mkdir -p "$(dirname "$PGDATA")"
  rm -rf "$PGDATA.new"
  pg_basebackup "${copy[@]}" --create-slot || { rm -rf "$PGDATA.new"; pg_basebackup "${copy[@]}"; }
  # Copied from the primary. Once promoted, this server has no standby, and each commit would wait for one.
  sed -i '/^synchronous_standby_names/d' "$PGDATA.new/postgresql.auto.conf"
  chmod 0700 "$PGDATA.new"
  rm -rf "$PGDATA"
  mv "$PGDATA.new" "$PGDATA"
  unset PGPASSWORD
fi
exec "$@"
