/**
 * Reads that decide nothing (lists, sums, exports) may use a streaming standby (DATABASE_READ_URL). Such a read never
 * shows an older state than the primary would: it first waits until the standby has replayed what the primary had
 * written when the read began. If the standby cannot do that soon, the primary is read instead.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { Counter, type Registry } from "prom-client";
import { registerGauges } from "../telemetry.ts";
import { isDatabaseUnavailable, isStatementTimeout, isRecoveryConflict, type Sql } from "./pool.ts";
import type { PrismaClient } from "./prisma.ts";

/** Runs a read that never decides about money. It may be repeated, so it must not write. */
export type Reading = <T>(read: (prisma: PrismaClient) => Promise<T>) => Promise<T>;

/** A standby that is further behind is not even asked. */
const BOUND_MS = 5_000;
/** How long a read waits for the standby. In a healthy network it is a few milliseconds behind. */
const CATCH_UP_MS = 250;
const POLL_MS = 5;
const CHECK_MS = 1_000;

interface Identity {
  isStandby: boolean;
  /** Null if this role may not read it, or the service has no such thing. */
  system: string | null;
  database: string;
  timeline: number | null;
  /** Bytes of WAL: written by the primary, replayed by a standby. */
  lsn: bigint;
}

const CONTROLLED = `
  (SELECT system_identifier::text FROM pg_control_system()) AS system,
  CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint())
       ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END AS timeline`;
const UNCONTROLLED = "NULL AS system, NULL::int AS timeline";
/** A standby takes over a new timeline in its control file with its next restart point. Until then it is not used. */
const identifyBy = (control: string): string => `
  SELECT pg_is_in_recovery() AS "isStandby", current_database() || ' ' || (
           SELECT oid FROM pg_database WHERE datname = current_database()) AS database,
         ((CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END) - '0/0')::text AS lsn,
         ${control}`;
/** No such function, or not allowed for this role. */
const UNKNOWN = new Set(["42883", "42501", "0A000"]);

export async function identify(sql: Sql): Promise<Identity> {
  const ask = async (text: string): Promise<Identity> => {
    // SQL: the server itself, and its position in the WAL.
    const { rows } = await sql.query<Omit<Identity, "lsn"> & { lsn: string }>(text);
    const [row] = rows;
    if (!row) throw new Error("the database did not identify itself");
    return { ...row, lsn: BigInt(row.lsn) };
  };
  try {
    return await ask(identifyBy(CONTROLLED));
  } catch (error) {
    if (!UNKNOWN.has((error as { code?: string }).code ?? "")) throw error;
    return ask(identifyBy(UNCONTROLLED));
  }
}

/** Why this server is no standby of that primary; undefined if it is one. */
export function whyNotItsStandby(primary: Identity, replica: Identity): string | undefined {
  if (!replica.isStandby)
    return "is not a standby (it is not in recovery, because it is a primary or was promoted)";
  if (replica.system !== primary.system)
    return `belongs to a different database system (${replica.system}, not ${primary.system})`;
  return replica.database === primary.database ? undefined : "leads to a different database";
}

interface Deps {
  primary: { sql: Sql; prisma: PrismaClient };
  replica: {
    /** For statements about the standby; these end soon, even if it does not respond. */
    status: Sql;
    prisma: PrismaClient;
  };
  metrics: Registry;
  nowMs: () => number;
  log: { warn(fields: object, text: string): void; info(text: string): void };
}

export class ReadReplica {
  readonly #deps: Deps;
  readonly #reads: Counter<"server">;
  /** Why the primary is read; undefined while the standby is used. */
  #unused: string | undefined = "it was not checked yet";
  /** What the primary had written, and when; the oldest first. */
  #written: { atMs: number; lsn: bigint }[] = [];
  #lagMs: number | undefined;

  constructor(deps: Deps) {
    this.#deps = deps;
    this.#reads = new Counter({
      name: "purser_reads_total",
      help: "Reads that a read replica may answer, by the server that answered",
      labelNames: ["server"],
      registers: [deps.metrics],
    });
    registerGauges(deps.metrics, {
      labelNames: [],
      rows: () => [{ labels: {}, lagMs: this.#lagMs, isUsed: this.#unused === undefined }],
      gauges: {
        purser_read_replica_used: [
          "1 while reads use the read replica, 0 while they use the primary",
          ({ isUsed }) => Number(isUsed),
        ],
        purser_read_replica_lag_seconds: [
          "How old the state of the read replica is, at the last check",
          ({ lagMs }) => (lagMs === undefined ? undefined : lagMs / 1_000),
        ],
      },
    });
  }

  /** Checks the standby until the signal. */
  async watch(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.check();
      await sleep(CHECK_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  async check(): Promise<void> {
    const { primary, replica } = this.#deps;
    try {
      const atMs = this.#deps.nowMs();
      const written = await identify(primary.sql);
      const standby = await identify(replica.status);
      this.#lagMs = this.#lagOf({ atMs, lsn: written.lsn }, standby.lsn);
      this.#use(
        whyNotItsStandby(written, standby) ??
          (standby.timeline === written.timeline
            ? undefined
            : "does not follow the present primary yet") ??
          (this.#lagMs > BOUND_MS ? `is ${Math.round(this.#lagMs / 1_000)} s behind` : undefined),
      );
    } catch (error) {
      this.#lagMs = undefined;
      this.#use("does not respond", error);
    }
  }

  /** The age of the newest state that is known to be replayed. */
  #lagOf(now: { atMs: number; lsn: bigint }, replayed: bigint): number {
    this.#written.push(now);
    const done = this.#written.findLastIndex(({ lsn }) => lsn <= replayed);
    this.#written = this.#written.slice(Math.max(done, 0));
    const [oldest = now] = this.#written;
    // One entry a second; of a standby that stands still for long, "at least this old" is enough.
    if (this.#written.length > 3_600) this.#written.splice(1, 1);
    return done === -1 || oldest.atMs < now.atMs ? this.#deps.nowMs() - oldest.atMs : 0;
  }

  #use(unused: string | undefined, error?: unknown): void {
    if ((unused === undefined) !== (this.#unused === undefined)) {
      if (unused === undefined) this.#deps.log.info("reads use the read replica");
      else this.#deps.log.warn({ err: error }, `the read replica ${unused}; reads use the primary`);
    }
    this.#unused = unused;
  }

  async read<T>(read: (prisma: PrismaClient) => Promise<T>): Promise<T> {
    const { primary, replica } = this.#deps;
    if (this.#unused === undefined && (await this.#isCaughtUp())) {
      try {
        const result = await read(replica.prisma);
        this.#reads.inc({ server: "replica" });
        return result;
      } catch (error) {
        if (!isOfReplica(error)) throw error;
        this.#use("failed", error);
      }
    }
    this.#reads.inc({ server: "primary" });
    return read(primary.prisma);
  }

  /** Waits until the standby has replayed everything that is committed now. */
  async #isCaughtUp(): Promise<boolean> {
    const { primary, replica, nowMs } = this.#deps;
    const untilMs = nowMs() + CATCH_UP_MS;
    // SQL: positions in the WAL.
    const { rows } = await primary.sql.query<{ lsn: string }>(
      "SELECT pg_current_wal_lsn()::text AS lsn",
    );
    const lsn = rows[0]?.lsn;
    const replayed = async (): Promise<boolean> => {
      // SQL: positions in the WAL.
      const { rows: found } = await replica.status.query<{ ready: boolean | null }>(
        "SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= $1::pg_lsn AS ready",
        [lsn],
      );
      return found[0]?.ready === true;
    };
    try {
      for (;;) {
        if (await replayed()) return true;
        if (nowMs() > untilMs) return false;
        await sleep(POLL_MS);
      }
    } catch (error) {
      this.#use("does not respond", error);
      return false;
    }
  }
}

/** The primary may be able to answer. A statement that takes too long would take as long there. */
const isOfReplica = (error: unknown): boolean =>
  !isStatementTimeout(error) && (isDatabaseUnavailable(error) || isRecoveryConflict(error));
