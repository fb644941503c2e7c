/** One fetch in the fetch ledger: created before the request is sent, completed when its result is known. */
import { stringifyExact } from "../../core/exact-json.ts";
import { ApiError } from "../../errors.ts";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import type { Answer } from "../payments/idempotency.ts";
import { heldBytes, type Lease } from "./budget.ts";
import type { FetchEnd, FetchStart } from "./fetches-store.ts";

export interface FetchLedger {
  begin(start: FetchStart): Promise<string>;
  end(key: { agentId: string; id: string }, end: FetchEnd): Promise<void>;
  kept(agentId: string): Promise<{ bytes: number; releaseInSeconds: number }>;
  /** Responses that are stored only until they are delivered. */
  undelivered(agentId: string): Promise<{ bytes: number; releaseInSeconds: number }>;
}

/**
 * Paid responses are stored so that they can be replayed with their key: at most this many bytes per agent in
 * 24 hours.
 */
export const KEPT_BYTES_PER_DAY = 64 * 1024 * 1024;

type FetchRequest = (request: OutboundRequest) => Promise<OutboundResponse>;

export class LedgerEntry {
  readonly #ledger: FetchLedger;
  readonly #start: FetchStart;
  readonly #begun: Promise<string>;
  readonly #send: FetchRequest;
  readonly #lease: Lease;
  #status: number | null = null;
  #bytes = 0;

  constructor(ledger: FetchLedger, start: FetchStart, send: FetchRequest, lease: Lease) {
    this.#ledger = ledger;
    this.#start = start;
    this.#send = send;
    this.#lease = lease;
    this.#begun = ledger.begin(start);
    // `begun` rethrows this; the target is requested meanwhile.
    this.#begun.catch(() => undefined);
  }

  /** Nothing is paid or returned before the fetch is in the ledger. */
  async begun(): Promise<void> {
    await this.#begun;
  }

  /** Sends a request to the target within the agent's share of memory, and counts the received bytes. */
  send: FetchRequest = async (request) => {
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
    const kept = isKept(ref) ? this.#ledger.kept(agentId) : this.#ledger.undelivered(agentId);
    const { bytes, releaseInSeconds } = await kept;
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
    await this.#ledger.end({ agentId: this.#start.agentId, id }, { ...end, ...seen });
  }
}

/** Counted for a day. Responses that are stored only until delivery count as long as they are stored. */
const isKept = (ref: IdempotencyRef | undefined): boolean =>
  ref !== undefined && (!ref.joins || ref.call !== undefined);

const idOf = (paymentId: unknown): string | null =>
  typeof paymentId === "string" ? paymentId : null;
