/**
 * The fetch ledger: each request sent on an agent's behalf, and how many bytes came back and are stored. An entry
 * is created before the request is sent, and completed when its result is known.
 */
import { stringifyExact } from "../../core/exact-json.ts";
import { ApiError } from "../../errors.ts";
import type { Sql } from "../../infra/db/pool.ts";
import {
  databaseNow,
  hoursBefore,
  placeOf,
  readKeyset,
  secondsAfter,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";
import { newId } from "../../core/ids.ts";
import type { PageRequest } from "../../core/paging.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import type { Answer } from "../payments/idempotency.ts";
import { undeliveredBytes } from "../payments/lost-responses.ts";
import { heldBytes, type Lease } from "./budget.ts";
import type { SendRequest } from "./request.ts";

export type FetchRow = Prisma.FetchGetPayload<object>;

interface FetchStart {
  agentId: string;
  apiKeyId: string | null;
  requestId: string | null;
  kind: "fetch" | "quote";
  method: string;
  url: URL;
  listingId: string | undefined;
}

interface FetchEnd {
  outcome: "free" | "paid" | "quoted" | "refused" | "failed";
  code: string | null;
  status: number | null;
  bytes: number;
  keptBytes: number;
  paymentId: string | null;
  /** Access granted for an earlier payment, by the wallet's signature (sign-in-with-x). */
  signedIn?: boolean;
}

/**
 * Paid responses are stored so that they can be replayed with their key: at most this many bytes per agent in
 * 24 hours.
 */
export const KEPT_BYTES_PER_DAY = 64 * 1024 * 1024;

interface LedgerStores {
  pool: Sql;
  db: Db;
}

export class LedgerEntry {
  readonly #stores: LedgerStores;
  readonly #start: FetchStart;
  readonly #begun: Promise<string>;
  readonly #send: SendRequest;
  readonly #lease: Lease;
  #status: number | null = null;
  #bytes = 0;

  constructor(stores: LedgerStores, start: FetchStart, send: SendRequest, lease: Lease) {
    this.#stores = stores;
    this.#start = start;
    this.#send = send;
    this.#lease = lease;
    this.#begun = beginFetch(stores.pool, start);
    // `begun` rethrows this; the target is requested meanwhile.
    this.#begun.catch(() => undefined);
  }

  /** Nothing is paid or returned before the fetch is in the ledger. */
  async begun(): Promise<void> {
    await this.#begun;
  }

  /** Sends a request to the target within the agent's share of memory, and counts the received bytes. */
  send: SendRequest = async (request) => {
    this.#status = null;
    const mayRead = (bytes: number): boolean => {
      this.#bytes += bytes;
      return this.#lease.take(heldBytes(bytes));
    };
    try {
      const response = await this.#send({ ...request, mayRead, isPartialWanted: true });
      this.#status = response.status;
      return response;
    } catch (error) {
      throw this.#lease.refusal ?? error;
    }
  };

  /** Throws if a response with a key could not be stored, before anything is signed for it. */
  async assertRoomToKeep(ref: IdempotencyRef): Promise<void> {
    const { agentId } = this.#start;
    const { pool, db } = this.#stores;
    const { bytes, releaseInSeconds } = isKept(ref)
      ? await keptLastDay(db, agentId)
      : await undeliveredBytes(pool, agentId);
    if (bytes < KEPT_BYTES_PER_DAY) return;
    throw new ApiError("fetch_quota_exceeded", {
      headers: { "retry-after": String(releaseInSeconds) },
      extra: { keptBytes: bytes, quotaBytes: KEPT_BYTES_PER_DAY, paid: false },
    });
  }

  /** `text`: the stored form of the response. */
  async ended({ body, text }: Answer, ref: IdempotencyRef | undefined): Promise<void> {
    const { paid, dryRun, paymentId } = body;
    if (body["status"] === "approval_required") return this.#refused("approval_required");
    const outcome = dryRun === true ? "quoted" : paid === true ? "paid" : "free";
    await this.#end({
      outcome,
      code: null,
      paymentId: idOf(paymentId),
      signedIn: body["signedIn"] === true,
      keptBytes: isKept(ref) && typeof paymentId === "string" ? Buffer.byteLength(text ?? "") : 0,
    });
  }

  async failed(error: unknown): Promise<void> {
    const apiError = error instanceof ApiError ? error : undefined;
    const outcome = apiError && apiError.status < 500 ? "refused" : "failed";
    const code = apiError?.code ?? "internal_error";
    const paymentId = idOf(apiError?.extra["paymentId"]);
    // The seller's response is stored with the error that contains it.
    const carriesIt = paymentId !== null && apiError?.extra["thirdParty"] !== undefined;
    const keptBytes = carriesIt ? Buffer.byteLength(stringifyExact(apiError.extra)) : 0;
    await this.#end({ outcome, code, paymentId, keptBytes });
  }

  async #refused(code: string): Promise<void> {
    await this.#end({ outcome: "refused", code, paymentId: null, keptBytes: 0 });
  }

  async #end(end: Omit<FetchEnd, "status" | "bytes">): Promise<void> {
    const id = await this.#begun;
    const seen = { status: this.#status, bytes: this.#bytes };
    await endFetch(this.#stores.pool, { agentId: this.#start.agentId, id }, { ...end, ...seen });
  }
}

/** Counted for a day. Responses that are stored only until delivery count as long as they are stored. */
const isKept = (ref: IdempotencyRef | undefined): boolean =>
  ref !== undefined && (!ref.joins || ref.call !== undefined);

const idOf = (paymentId: unknown): string | null =>
  typeof paymentId === "string" ? paymentId : null;

/** Long and unlike a word, as keys and tokens in paths are. */
const LIKE_A_SECRET = /^(?=.*\d)[\w.:~%+=-]{20,}$|^.{65,}$/;

/** The origin and path without possible secrets: no query, and no segment that looks like a key. */
export function placeForLedger({ origin, pathname }: URL): { origin: string; path: string } {
  const path = pathname
    .split("/")
    .map((segment) => (LIKE_A_SECRET.test(segment) ? "***" : segment))
    .join("/");
  return { origin: origin.slice(0, 300), path: path.slice(0, 512) };
}

async function beginFetch(sql: Sql, start: FetchStart): Promise<string> {
  const id = newId("fet");
  const { agentId, apiKeyId, requestId, kind, method, url, listingId = null } = start;
  const { origin, path } = placeForLedger(url);
  // SQL: part of every fetch; prepared.
  await sql.query({
    name: "fetch-begun",
    text: `INSERT INTO fetches (agent_id, id, api_key_id, request_id, kind, method, origin, path, listing_id)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    values: [agentId, id, apiKeyId, requestId, kind, method, origin, path, listingId],
  });
  return id;
}

async function endFetch(
  sql: Sql,
  { agentId, id }: { agentId: string; id: string },
  end: FetchEnd,
): Promise<void> {
  const { outcome, code, status, bytes, keptBytes, paymentId, signedIn = false } = end;
  // SQL: part of every fetch; prepared, and with the database's time in one round trip.
  await sql.query({
    name: "fetch-ended",
    text: `UPDATE fetches SET outcome = $3, code = $4, status = $5, bytes = $6, kept_bytes = $7, payment_id = $8,
                  signed_in = $9, ended_at = clock_timestamp()
            WHERE agent_id = $1 AND id = $2`,
    values: [agentId, id, outcome, code, status, bytes, keptBytes, paymentId, signedIn],
  });
}

/**
 * The stored bytes of an agent's responses of the last 24 hours, and the time until the oldest no longer
 * counts.
 */
async function keptLastDay(
  db: Db,
  agentId: string,
): Promise<{ bytes: number; releaseInSeconds: number }> {
  const now = await databaseNow(db);
  const { _sum, _min } = await db.fetch.aggregate({
    where: { agentId, keptBytes: { gt: 0 }, createdAt: { gt: hoursBefore(now, 24) } },
    _sum: { keptBytes: true },
    _min: { createdAt: true },
  });
  const releasedAt = secondsAfter(_min.createdAt ?? now, 24 * 3600);
  return {
    bytes: Number(_sum.keptBytes ?? 0),
    releaseInSeconds: Math.max(1, Math.ceil((releasedAt.getTime() - now.getTime()) / 1000)),
  };
}

export async function listFetches(db: Db, agentId: string, page: PageRequest) {
  const rows = await readKeyset(page, (where, order) =>
    db.fetch.findMany({ where: { agentId, ...where }, ...order }),
  );
  return rows.map((row) => ({ ...row, ...placeOf(row) }));
}
