/** One owner's server-sent events (SSE): every event once, in order, from any replica, resumable. */
import type { Sql } from "../../infra/db/pool.ts";
import type { Payment } from "../../schemas/payments.ts";

/** Streams of this process that wait for events, by owner. A wakeup is only a hint; events are read from Postgres. */
export class Wakeups {
  readonly #waiting = new Map<string, Set<() => void>>();
  #closed = false;

  wake(ownerId: string): void {
    for (const resolve of this.#waiting.get(ownerId) ?? []) resolve();
  }

  /** After a lost connection every stream may have missed something. */
  wakeAll(): void {
    for (const ownerId of this.#waiting.keys()) this.wake(ownerId);
  }

  close(): void {
    this.#closed = true;
    this.wakeAll();
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** Owners with open streams. */
  owners(): string[] {
    return [...this.#waiting.keys()];
  }

  /** Subscribes at once, so that events between a read and the wait are not missed. */
  subscribe(ownerId: string): { wait(timeoutMs: number): Promise<boolean>; end(): void } {
    let isAwake = false;
    let notify: (() => void) | undefined;
    const wake = (): void => {
      isAwake = true;
      notify?.();
    };
    const waiting = this.#waiting.get(ownerId) ?? new Set();
    this.#waiting.set(ownerId, waiting.add(wake));
    return {
      /** True if there may be new events, false after the timeout. */
      wait: (timeoutMs) =>
        new Promise((resolve) => {
          const finish = (news: boolean): void => {
            clearTimeout(timer);
            notify = undefined;
            isAwake = false;
            resolve(news);
          };
          const timer = setTimeout(() => finish(false), timeoutMs);
          notify = () => finish(true);
          if (isAwake || this.#closed) finish(true);
        }),
      end: () => {
        wake();
        waiting.delete(wake);
        if (waiting.size === 0) this.#waiting.delete(ownerId);
      },
    };
  }
}

interface Deps {
  wakeups: Wakeups;
  read(args: { ownerId: string; after: EventPlace; limit: number }): Promise<EventRow[]>;
  current(): Promise<{ now: EventPlace; futureTx: bigint }>;
  isSessionLive(sessionId: string): Promise<boolean>;
  payments(keys: { agentId: string; paymentId: string }[]): Promise<Map<string, Payment>>;
  changedSince(args: ChangedSince): Promise<ReadonlySet<string>>;
  heartbeatMs: number;
}

const BATCH = 200;
/** How soon to look again for events that wait for an older transaction to end. */
const HIDDEN_MS = 40;

export async function* eventStream(
  deps: Deps,
  args: {
    ownerId: string;
    sessionId: string;
    lastEventId: string | undefined;
    /** Aborted when the client has disconnected, which ends every wait. */
    gone: AbortSignal;
  },
): AsyncGenerator<string> {
  const subscription = deps.wakeups.subscribe(args.ownerId);
  args.gone.addEventListener("abort", () => subscription.end());
  try {
    let after = await startingPlace(deps, args.lastEventId);
    yield "retry: 1000\n: connected\n\n";
    while (!deps.wakeups.isClosed && !args.gone.aborted) {
      const found = await deps.read({ ownerId: args.ownerId, after, limit: BATCH });
      const firstHidden = found.findIndex((row) => !row.ready);
      const rows = firstHidden === -1 ? found : found.slice(0, firstHidden);
      const last = rows.at(-1);
      if (last) {
        after = last;
        const mine = rows.filter(
          (row) => row.type !== "session" || row.subjectId === args.sessionId,
        );
        if (mine.length > 0) yield await render(deps, args.ownerId, mine);
        if (mine.some((row) => row.type === "session")) return;
      }
      if (firstHidden !== -1) await subscription.wait(HIDDEN_MS);
      else if (found.length < BATCH && !(await subscription.wait(deps.heartbeatMs))) {
        if (!(await deps.isSessionLive(args.sessionId))) {
          yield "event: session\ndata: {}\n\n";
          return;
        }
        yield ": heartbeat\n\n";
      }
    }
  } finally {
    subscription.end();
  }
}

/** The client's last position, or now. A position ahead of this database (after a restore) is ignored. */
async function startingPlace(deps: Deps, lastEventId: string | undefined): Promise<EventPlace> {
  const { now, futureTx } = await deps.current();
  const [, tx, seq] = /^([0-9]{1,18})-([0-9]{1,18})$/.exec(lastEventId ?? "") ?? [];
  if (tx === undefined || seq === undefined || BigInt(tx) >= futureTx) return now;
  return { tx: BigInt(tx), seq: BigInt(seq) };
}

/**
 * A payment that changed several times is sent once, in its current state, at the position of its last change. If that
 * change is not to be sent yet, the payment is left out here. This is checked after the payments are read, so that no
 * state is sent before the position of its change.
 */
async function render(deps: Deps, ownerId: string, rows: EventRow[]): Promise<string> {
  const lastOf = new Map(rows.map((row) => [`${row.type}:${row.subjectId}`, row]));
  const last = rows.filter((row) => lastOf.get(`${row.type}:${row.subjectId}`) === row);
  const changed = last.flatMap((row) =>
    row.type === "payment" && row.agentId !== null
      ? [{ agentId: row.agentId, paymentId: row.subjectId }]
      : [],
  );
  const payments = await deps.payments(changed);
  const paymentIds = changed.map(({ paymentId }) => paymentId);
  const after = rows.at(-1);
  const changedAgain = after && (await deps.changedSince({ ownerId, after, paymentIds }));
  const sent = last.filter((row) => row.type !== "payment" || !changedAgain?.has(row.subjectId));
  return sent.map((row) => renderOne(row, payments)).join("");
}

function renderOne(row: EventRow, payments: Map<string, Payment>): string {
  const data =
    row.type === "payment"
      ? payments.get(row.subjectId)
      : row.type === "agent" || row.type === "alarm"
        ? { agentId: row.subjectId }
        : row.type.startsWith("approval.")
          ? { approvalId: row.subjectId, agentId: row.agentId }
          : {};
  if (data === undefined) return "";
  return `id: ${row.tx}-${row.seq}\nevent: ${row.type}\ndata: ${JSON.stringify(data)}\n\n`;
}

interface EventRow {
  tx: bigint;
  seq: bigint;
  type: "payment" | "agent" | "session" | "owner" | "alarm" | `approval.${string}`;
  agentId: string | null;
  subjectId: string;
  /** False: an earlier transaction is still running and may add events before this one. */
  ready: boolean;
}

/** A position in an owner's stream. */
interface EventPlace {
  tx: bigint;
  seq: bigint;
}

export async function readEvents(
  sql: Sql,
  args: { ownerId: string; after: EventPlace; limit: number },
): Promise<EventRow[]> {
  // SQL: `tx >=` lets Postgres skip partitions. The events of one snapshot, and which transactions it sees as running, in one query.
  const { rows } = await sql.query<EventRow>(
    `SELECT tx, seq, type, agent_id AS "agentId", subject_id AS "subjectId",
            tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS ready
       FROM events WHERE owner_id = $1 AND tx >= $2 AND (tx, seq) > ($2, $3)
      ORDER BY tx, seq LIMIT $4`,
    [args.ownerId, String(args.after.tx), String(args.after.seq), args.limit],
  );
  return rows;
}

interface ChangedSince {
  ownerId: string;
  after: EventPlace;
  paymentIds: readonly string[];
}

/** The payments among these that have an event after this position, whether or not it can be sent yet. */
export async function changedSince(
  sql: Sql,
  { ownerId, after, paymentIds }: ChangedSince,
): Promise<ReadonlySet<string>> {
  if (paymentIds.length === 0) return new Set();
  // SQL: positions are compared as pairs.
  const { rows } = await sql.query<{ id: string }>(
    `SELECT DISTINCT subject_id AS id FROM events
      WHERE owner_id = $1 AND tx >= $2 AND (tx, seq) > ($2, $3) AND type = 'payment' AND subject_id = ANY ($4)`,
    [ownerId, String(after.tx), String(after.seq), paymentIds],
  );
  return new Set(rows.map(({ id }) => id));
}

/** The owners among these that have events since `sinceTx`, and the `sinceTx` of the next query. */
export async function ownersWithNews(
  sql: Sql,
  ownerIds: readonly string[],
  sinceTx: bigint,
): Promise<{ owners: string[]; nextTx: bigint }> {
  // SQL: the snapshot and what it contains in one query, four times a second.
  const { rows } = await sql.query<{ xmin: bigint; owners: string[] }>(
    `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
            ARRAY(SELECT o.id FROM unnest($1::text[]) AS o (id)
                   WHERE EXISTS (SELECT 1 FROM events e WHERE e.owner_id = o.id AND e.tx >= $2)) AS owners`,
    [ownerIds, String(sinceTx)],
  );
  const row = rows[0];
  return { owners: row?.owners ?? [], nextTx: row?.xmin ?? sinceTx };
}

/** Where a stream without a last position starts, and the first position that cannot exist yet. */
export async function currentPlace(sql: Sql): Promise<{ now: EventPlace; futureTx: bigint }> {
  // SQL: the snapshot itself, which is not a table.
  const { rows } = await sql.query<{ xmin: bigint; xmax: bigint }>(
    `SELECT pg_snapshot_xmin(s)::text::bigint AS xmin, pg_snapshot_xmax(s)::text::bigint AS xmax
       FROM pg_current_snapshot() AS s`,
  );
  const { xmin, xmax } = rows[0] ?? { xmin: 0n, xmax: 0n };
  return { now: { tx: xmin - 1n, seq: MAX_SEQ }, futureTx: xmax };
}
const MAX_SEQ = (1n << 63n) - 1n;
