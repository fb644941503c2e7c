/**
 * The fetch ledger: each request sent on an agent's behalf, and how many bytes came back and are stored. An entry
 * is created before the request is sent, and completed when its result is known.
 */
import { stringifyExact } from "../../core/exact-json.ts";
import { ApiError } from "../../errors.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { placeOf, readKeyset, type Db, type Prisma } from "../../infra/db/prisma.ts";
import { newId } from "../../core/ids.ts";
import type { PageRequest } from "../../core/paging.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import type { Answer, KeptResult } from "../payments/idempotency.ts";
import { UNDELIVERED_BYTES } from "../payments/lost-responses.ts";
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
  /** The key of the call; a quote has none. */
  ref: IdempotencyRef | undefined;
}

interface FetchOutcome {
  outcome: "free" | "paid" | "quoted" | "refused" | "failed";
  code: string | null;
  keptBytes: number;
  paymentId: string | null;
  /** Access granted for an earlier payment, by the wallet's signature (sign-in-with-x). */
  signedIn?: boolean;
}

/** Where a fetch is in the ledger, and how it ended. */
export interface FetchEnd extends FetchOutcome {
  agentId: string;
  fetchId: string;
  status: number | null;
  bytes: number;
}

/**
 * Paid responses are stored so that they can be replayed with their key: at most this many bytes per agent in
 * 24 hours.
 */
export const KEPT_BYTES_PER_DAY = 64 * 1024 * 1024;

export class LedgerEntry {
  readonly #sql: Sql;
  readonly #start: FetchStart;
  readonly #begun: Promise<FetchBegun>;
  readonly #send: SendRequest;
  readonly #lease: Lease;
  #status: number | null = null;
  #bytes = 0;
  #hasEnded = false;

  constructor(sql: Sql, start: FetchStart, send: SendRequest, lease: Lease) {
    this.#sql = sql;
    this.#start = start;
    this.#send = send;
    this.#lease = lease;
    this.#begun = beginFetch(sql, start);
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

  /** Throws if the response could not be stored, before anything is signed for it. */
  async assertRoomToKeep(): Promise<void> {
    const { bytes, releaseInSeconds } = await this.#begun;
    if (bytes < KEPT_BYTES_PER_DAY) return;
    throw new ApiError("fetch_quota_exceeded", {
      headers: { "retry-after": String(releaseInSeconds) },
      extra: { keptBytes: bytes, quotaBytes: KEPT_BYTES_PER_DAY, paid: false },
    });
  }

  async ended(answer: Answer): Promise<void> {
    await this.#end(this.#outcomeOf(answer), (end) => endFetch(this.#sql, end));
  }

  async failed(error: unknown): Promise<void> {
    await this.#end(outcomeOfError(error), (end) => endFetch(this.#sql, end));
  }

  /** Ends in the statement that ends the payment. */
  async endedWith(kept: KeptResult, write: (end: FetchEnd) => Promise<void>): Promise<void> {
    const end = kept.kind === "done" ? this.#outcomeOf(kept.answer) : outcomeOfError(kept.error);
    await this.#end(end, write);
  }

  /** `text`: the stored form of the response. */
  #outcomeOf({ body, text }: Answer): FetchOutcome {
    const { paid, dryRun, paymentId } = body;
    if (body["status"] === "approval_required")
      return { outcome: "refused", code: "approval_required", paymentId: null, keptBytes: 0 };
    const isStored = isKept(this.#start.ref) && typeof paymentId === "string";
    return {
      outcome: dryRun === true ? "quoted" : paid === true ? "paid" : "free",
      code: null,
      paymentId: idOf(paymentId),
      signedIn: body["signedIn"] === true,
      keptBytes: isStored ? Buffer.byteLength(text ?? "") : 0,
    };
  }

  async #end(outcome: FetchOutcome, write: (end: FetchEnd) => Promise<void>): Promise<void> {
    if (this.#hasEnded) return;
    const { fetchId } = await this.#begun;
    const { agentId } = this.#start;
    await write({ ...outcome, agentId, fetchId, status: this.#status, bytes: this.#bytes });
    this.#hasEnded = true;
  }
}

function outcomeOfError(error: unknown): FetchOutcome {
  const apiError = error instanceof ApiError ? error : undefined;
  const paymentId = idOf(apiError?.extra["paymentId"]);
  // The seller's response is stored with the error that contains it.
  const carriesIt = paymentId !== null && apiError?.extra["thirdParty"] !== undefined;
  return {
    outcome: apiError && apiError.status < 500 ? "refused" : "failed",
    code: apiError?.code ?? "internal_error",
    paymentId,
    keptBytes: carriesIt ? Buffer.byteLength(stringifyExact(apiError.extra)) : 0,
  };
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

/** The entry, and the stored bytes of the agent's responses with the time until there is more room. */
interface FetchBegun {
  fetchId: string;
  bytes: number;
  releaseInSeconds: number;
}

/** Of an agent's responses that are stored with a key of its own: of the last 24 hours. */
const KEPT_LAST_DAY = `
  SELECT COALESCE(sum(kept_bytes), 0)::float8 AS bytes,
         GREATEST(1, ceil(24 * 3600 - extract(epoch FROM now() - COALESCE(min(created_at), now()))))::int AS "releaseInSeconds"
    FROM fetches WHERE agent_id = $1 AND kept_bytes > 0 AND created_at > now() - interval '24 hours'`;

async function beginFetch(sql: Sql, start: FetchStart): Promise<FetchBegun> {
  const fetchId = newId("fet");
  const { agentId, apiKeyId, requestId, kind, method, url, listingId = null, ref } = start;
  const { origin, path } = placeForLedger(url);
  // SQL: part of every fetch; prepared, in one round trip.
  const { rows } = await sql.query<Omit<FetchBegun, "fetchId">>({
    name: isKept(ref) ? "fetch-begun-with-key" : "fetch-begun",
    text: `WITH begun AS (
             INSERT INTO fetches (agent_id, id, api_key_id, request_id, kind, method, origin, path, listing_id)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9))
           ${isKept(ref) ? KEPT_LAST_DAY : UNDELIVERED_BYTES}`,
    values: [agentId, fetchId, apiKeyId, requestId, kind, method, origin, path, listingId],
  });
  return { fetchId, bytes: 0, releaseInSeconds: 60, ...rows[0] };
}

/** The update of the entry, with its values from this place on. */
export const endOfFetch = (first: number): string => {
  const value = (nth: number): string => `$${first + nth}`;
  return `UPDATE fetches SET outcome = ${value(2)}, code = ${value(3)}, status = ${value(4)}, bytes = ${value(5)},
                 kept_bytes = ${value(6)}, payment_id = ${value(7)}, signed_in = ${value(8)}, ended_at = clock_timestamp()
           WHERE agent_id = ${value(0)} AND id = ${value(1)}`;
};

export const endValues = ({ signedIn = false, ...end }: FetchEnd): unknown[] => [
  end.agentId,
  end.fetchId,
  end.outcome,
  end.code,
  end.status,
  end.bytes,
  end.keptBytes,
  end.paymentId,
  signedIn,
];

async function endFetch(sql: Sql, end: FetchEnd): Promise<void> {
  // SQL: part of every fetch; prepared, and with the database's time in one round trip.
  await sql.query({ name: "fetch-ended", text: endOfFetch(1), values: endValues(end) });
}

export async function listFetches(db: Db, agentId: string, page: PageRequest) {
  const rows = await readKeyset(page, (where, order) =>
    db.fetch.findMany({ where: { agentId, ...where }, ...order }),
  );
  return rows.map((row) => ({ ...row, ...placeOf(row) }));
}
