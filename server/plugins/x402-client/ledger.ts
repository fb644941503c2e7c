/** One fetch in the ledger of requests: begun before the request is sent, ended when its result is known. */
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
  /** Answers that are kept only until they are delivered. */
  unheard(agentId: string): Promise<{ bytes: number; releaseInSeconds: number }>;
}

/** Answers that were paid for are kept for a repeat with their key: so many bytes of one agent in 24 hours. */
export const KEPT_BYTES_PER_DAY = 64 * 1024 * 1024;

type FetchRequest = (request: OutboundRequest) => Promise<OutboundResponse>;

export class LedgerEntry {
  readonly #ledger: FetchLedger;
  readonly #start: FetchStart;
  readonly #begun: Promise<string>;
  readonly #ask: FetchRequest;
  readonly #lease: Lease;
  #status: number | null = null;
  #bytes = 0;

  constructor(ledger: FetchLedger, start: FetchStart, ask: FetchRequest, lease: Lease) {
    this.#ledger = ledger;
    this.#start = start;
    this.#ask = ask;
    this.#lease = lease;
    this.#begun = ledger.begin(start);
    // `begun` rejects with it; the target is requested meanwhile.
    this.#begun.catch(() => undefined);
  }

  /** Nothing is paid, and no answer given, that is not in the ledger. */
  async begun(): Promise<void> {
    await this.#begun;
  }

  /** Asks the target, within the agent's share of memory, and counts what comes. */
  ask: FetchRequest = async (request) => {
    this.#status = null;
    const mayRead = (bytes: number): boolean => {
      this.#bytes += bytes;
      return this.#lease.take(heldBytes(bytes));
    };
    try {
      const response = await this.#ask({ ...request, mayRead, isPartialWanted: true });
      this.#status = response.status;
      return response;
    } catch (error) {
      throw this.#lease.refusal ?? error;
    }
  };

  /** Throws when an answer with a key could not be kept any more: before anything is signed for it. */
  async assertRoomToKeep(ref: IdempotencyRef): Promise<void> {
    const { agentId } = this.#start;
    const kept = isKept(ref) ? this.#ledger.kept(agentId) : this.#ledger.unheard(agentId);
    const { bytes, releaseInSeconds } = await kept;
    if (bytes < KEPT_BYTES_PER_DAY) return;
    throw new ApiError("fetch_quota_exceeded", {
      headers: { "retry-after": String(releaseInSeconds) },
      extra: { keptBytes: bytes, quotaBytes: KEPT_BYTES_PER_DAY, paid: false },
    });
  }

  /** `text`: what is kept of it. */
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
    const told = error instanceof ApiError ? error : undefined;
    const outcome = told && told.status < 500 ? "refused" : "failed";
    const code = told?.code ?? "internal_error";
    const paymentId = idOf(told?.extra["paymentId"]);
    // The seller's answer is kept with the error that carries it.
    const carriesIt = paymentId !== null && told?.extra["thirdParty"] !== undefined;
    const keptBytes = carriesIt ? Buffer.byteLength(stringifyExact(told.extra)) : 0;
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

/** Counted for a day. Answers that are kept only until delivery count while they are there. */
const isKept = (ref: IdempotencyRef | undefined): boolean =>
  ref !== undefined && (!ref.joins || ref.call !== undefined);

const idOf = (paymentId: unknown): string | null =>
  typeof paymentId === "string" ? paymentId : null;
