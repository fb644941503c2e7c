/** From a signed authorization to an answer: present it, confirm it on chain, or take it back. */
import type { IdempotencyRef } from "../guardrails/types.ts";
import { inProgress, type Answer } from "../payments/idempotency.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { readTerms, type Offer, type OfferedTerms } from "./offer.ts";
import { present, type Presented } from "./show-proof.ts";
import { proofHeaders } from "./proof.ts";
import { readReceipt } from "./show-proof.ts";
import { recover } from "./recover.ts";
import type { ClientParts, FetchCaller, LedgerRow, PaymentKey, TargetRequest } from "./types.ts";
import {
  contentMembers,
  neverPaidError,
  paidBody,
  unknownError,
  type PaidFacts,
} from "./answers.ts";

export interface SignedJob {
  key: PaymentKey;
  target: TargetRequest;
  offer: Pick<Offer, "x402Version" | "resource" | "extensions">;
  accepted: OfferedTerms;
  authorization: SignedAuthorization;
  facts: Omit<PaidFacts, "txHash">;
  remainingAtomic: bigint;
  idempotency: IdempotencyRef | undefined;
  listingId: string | undefined;
  /** An earlier request with the same key made this payment. */
  replayed: boolean;
}

/** The second showing of one authorization gets less time than the first. */
const SECOND_TRY_MS = 10_000;
/** Beyond all the waits a request may make after it reserved: then its process has died. */
const ABANDONED_AFTER_MS = 5_000;

export class Delivery {
  readonly #parts: ClientParts;

  constructor(parts: ClientParts) {
    this.#parts = parts;
  }

  async deliver(job: SignedJob): Promise<Answer> {
    const proof = proofHeaders({
      offer: job.offer,
      terms: job.accepted,
      authorization: job.authorization,
      paymentId: job.key.paymentId,
    });
    let presented = await this.#present(job.target, proof);
    // The same authorization cannot pay twice, so showing it again is safe; a clear no is not asked again.
    if (
      presented.kind === "failed" &&
      (presented.how === "timeout" || presented.how === "broken")
    ) {
      const timeoutMs = Math.min(job.target.timeoutMs, SECOND_TRY_MS);
      presented = await this.#present({ ...job.target, timeoutMs }, proof);
    }
    await this.#parts.fault("answered");
    return presented.kind === "delivered"
      ? this.#confirm(job, presented.response)
      : this.#recover(job, presented);
  }

  /**
   * The request with this key has no answer yet: it runs elsewhere, or its process died. The state
   * of its payment decides; there is never a second one. Undefined: nothing was signed, start anew.
   */
  async resume(
    target: TargetRequest,
    caller: FetchCaller,
    paymentId: string | null,
  ): Promise<Answer | undefined> {
    if (paymentId === null) {
      // A free target's key whose process died before it stored the answer.
      await this.#parts.idempotency.release(caller.idempotency);
      return undefined;
    }
    const key = { agentId: caller.id, paymentId };
    const row = await this.#parts.ledger.find(key);
    if (!row || !this.#isOver(row, target)) throw inProgress(paymentId);
    if (row.status === "reserved") {
      const detail = "The process stopped before it signed.";
      if (await this.#parts.payments.voidReserved(key, "not_signed", detail)) return undefined;
    }
    if (row.status === "voided") {
      const error = neverPaidError(paymentId);
      await this.#parts.idempotency.completeWithError(caller.idempotency, error);
      throw error;
    }
    const settlement = await this.#parts.settlement.find(key.paymentId);
    const accepted = readTerms(row.terms.accepted, row.terms.x402Version);
    if (!settlement || !accepted) throw inProgress(paymentId);
    return this.deliver({
      key,
      target,
      offer: { ...row.terms, resource: row.terms.resource, extensions: undefined },
      accepted,
      authorization: settlement.authorization,
      facts: { ...row, paymentId: key.paymentId },
      remainingAtomic: await this.#parts.ledger.remaining(caller.id),
      idempotency: caller.idempotency,
      listingId: undefined,
      replayed: true,
    });
  }

  /**
   * Whether the request that made this payment has ended without an answer to keep. What the target did
   * is written after the answer is kept, or after "unknown" was its end; without it only time can tell.
   */
  #isOver(row: LedgerRow, target: TargetRequest): boolean {
    const longestMs =
      target.timeoutMs +
      Math.min(target.timeoutMs, SECOND_TRY_MS) +
      this.#parts.settleWaitMs +
      ABANDONED_AFTER_MS;
    return row.delivered !== null || row.ageSeconds * 1000 > longestMs;
  }

  #present(target: TargetRequest, proof: Record<string, string>): Promise<Presented> {
    return present((request) => this.#parts.ask(request), target, proof);
  }

  /** What the seller says about the payment only tells where to look: the chain decides. */
  async #confirm(
    job: SignedJob,
    response: Extract<Presented, { kind: "delivered" }>["response"],
  ): Promise<Answer> {
    const { key, facts, target, idempotency } = job;
    const delivery = { upstreamStatus: response.status, delivered: true };
    const record = (): Promise<void> => this.#parts.ledger.recordDelivery(key, delivery);
    const [outcome] = await Promise.all([
      // The receipt only says where to look.
      this.#parts.settlement.wait(key.paymentId, this.#parts.settleWaitMs, {
        look: true,
        txHash: readReceipt(response.headers).txHash,
      }),
      // With a key it is written last: see #isOver.
      idempotency === undefined ? record() : undefined,
    ]);
    await this.#parts.fault("confirmed");
    if (outcome.status === "pending") {
      await this.#parts.ledger.markUnknown(key);
      if (idempotency !== undefined) await record();
      throw unknownError(key.paymentId, "The target delivered, but has not collected its payment", {
        delivered: true,
        ...contentMembers(target, response),
      });
    }
    // Failed or expired: the target delivered, and provably cannot collect any more.
    const txHash = outcome.status === "settled" ? outcome.txHash : null;
    const answer: Answer = {
      statusCode: 200,
      replayed: job.replayed,
      body: paidBody(target, response, { ...facts, txHash }, job.remainingAtomic),
    };
    if (idempotency !== undefined) {
      await this.#parts.idempotency.completeWith(idempotency, answer);
      await record();
    }
    if (job.listingId !== undefined) this.#countUse(job.listingId);
    return answer;
  }

  async #recover(job: SignedJob, failure: Extract<Presented, { kind: "failed" }>): Promise<never> {
    const { key, authorization, facts, idempotency } = job;
    const { error, isFinal } = await recover(this.#parts, { key, authorization, facts, failure });
    await this.#parts.fault("confirmed");
    if (isFinal) await this.#parts.idempotency.completeWithError(idempotency, error);
    else await this.#parts.ledger.markUnknown(key);
    await this.#parts.ledger.recordDelivery(key, {
      upstreamStatus: failure.response?.status ?? null,
      delivered: false,
    });
    throw error;
  }

  /** Beside the answer: a counter is worth no waiting and no failure. */
  #countUse(listingId: string): void {
    this.#parts.listings
      .countUse(listingId)
      .catch((error: unknown) =>
        this.#parts.log.warn({ err: error, listingId }, "use of a listing not counted"),
      );
  }
}
