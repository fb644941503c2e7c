/**
 * x402-fetch: asks a target, pays what it demands within the agent's guardrails, and answers with
 * the data and a receipt the chain has confirmed. One request, at most one payment.
 */
import type { Address } from "viem";
import { ApiError } from "../../errors.ts";
import type { OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { ListingPins } from "../listings/book.ts";
import type { ProbedTerms } from "../listings/terms.ts";
import { compareTerms } from "../listings/terms.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { inProgress, keyReused, type Answer } from "../payments/idempotency.ts";
import type { PayRequest } from "../payments/types.ts";
import { askTarget } from "./ask.ts";
import { chooseTerms, type ChosenTerms } from "./choose.ts";
import { Delivery } from "./deliver.ts";
import type { Offer } from "./offer.ts";
import { probeTarget } from "./probe.ts";
import { assertOneTarget, prepare, type Prepared } from "./prepare.ts";
import type { ClientParts, FetchCaller, FetchInput, PaymentTerms } from "./types.ts";
import { termsOf } from "./choose.ts";
import { dryRunBody, freeBody } from "./answers.ts";

type Job = Prepared & {
  input: FetchInput;
  caller: FetchCaller;
  listing: ListingPins | undefined;
};

const FRESH_MS = 2_000;

type Refusal = NonNullable<PayRequest["refusal"]>;

export class X402Client {
  readonly #parts: ClientParts;
  readonly #delivery: Delivery;

  constructor(parts: ClientParts) {
    this.#parts = parts;
    this.#delivery = new Delivery(parts);
  }

  async fetch(input: FetchInput, caller: FetchCaller): Promise<Answer> {
    assertOneTarget(input);
    const ref = input.dryRun === true ? undefined : caller.idempotency;
    // Before anything else: an answer that exists is told even while the target is gone.
    const found = await this.#parts.idempotency.lookup(ref);
    if (found.kind === "answered") return found.answer;
    const listing =
      input.listingId === undefined
        ? undefined
        : await this.#parts.listings.forFetch(input.listingId);
    const job = { ...prepare(input, listing), input, caller, listing };
    if (found.kind === "running") {
      const answer = await this.#delivery.resume(job.target, caller, found.paymentId);
      if (answer) return answer;
    }
    if (listing && listing.status !== "active") throw new ApiError("listing_not_active");
    const balanceFor = this.#readBalanceAhead(caller);
    const asked = await askTarget((request) => this.#parts.ask(request), job.target).catch(
      (error: unknown) => this.#refused(job, error),
    );
    if (asked.kind === "free") return this.#free(job, asked.response);
    const choice = await this.#choose(job, asked.offer);
    const request = {
      ...payRequest(job, asked.offer, choice.chosen),
      refusal: choice.refusal,
      balance: balanceFor(choice.chosen.network),
    };
    if (input.dryRun === true) {
      const verdict = await this.#parts.payments.evaluate(request);
      return answer(dryRunBody(job.target, choice.chosen, verdict));
    }
    return this.#pay(job, asked.offer, choice.chosen, request);
  }

  /** What a URL asks for, parsed and validated; nothing is paid. */
  probe(url: string, options: { method: string; timeoutMs?: number }): Promise<ProbedTerms> {
    return probeTarget(this.#parts, url, options);
  }

  async #pay(
    { caller, target, listing }: Job,
    offer: Offer,
    chosen: ChosenTerms,
    request: PayRequest,
  ): Promise<Answer> {
    const result = await this.#parts.payments.authorize(request);
    switch (result.kind) {
      case "denied":
        throw result.error;
      case "replay":
        return this.#parts.idempotency.replay(result.statusCode, result.response);
      case "in_progress":
        throw inProgress(result.paymentId);
      case "key_reused":
        throw keyReused();
      default:
        break;
    }
    await this.#parts.fault("submitted");
    return this.#delivery.deliver({
      key: { agentId: caller.id, paymentId: result.paymentId },
      target,
      offer,
      accepted: chosen.terms,
      authorization: result.authorization,
      facts: {
        network: chosen.network.id,
        payTo: chosen.payTo,
        amountAtomic: chosen.amountAtomic,
        paymentId: result.paymentId,
      },
      remainingAtomic: result.remainingAtomic,
      idempotency: caller.idempotency,
      listingId: listing?.id,
      replayed: false,
    });
  }

  /**
   * Most targets that answer want to be paid on the agent's own network: its balance is read while the
   * target thinks. One read too long ago is not used.
   */
  #readBalanceAhead(caller: FetchCaller) {
    const own = this.#parts.networks.find(({ id }) => id === caller.network);
    const startedMs = performance.now();
    // Whoever needs it and finds none reads it again, and hears what is wrong.
    const early =
      own && this.#parts.payments.readBalance(own.chainId, caller).catch(() => undefined);
    return (network: NetworkFacts) =>
      network.id === own?.id && performance.now() - startedMs < FRESH_MS ? early : undefined;
  }

  async #free({ caller, target, input }: Job, response: OutboundResponse): Promise<Answer> {
    const remaining = await this.#parts.ledger.remaining(caller.id);
    const free = answer(freeBody(target, response, remaining));
    if (input.dryRun === true) Object.assign(free.body, { dryRun: true, price: "0" });
    else if (caller.idempotency) {
      // Nothing was reserved, so nothing took the key yet. The first answer stays.
      await this.#parts.idempotency.claim(caller.idempotency);
      await this.#parts.idempotency.completeWith(caller.idempotency, free);
    }
    return free;
  }

  /** The terms to pay; or, for a listing that is not kept, the live terms and why they are refused. */
  async #choose(job: Job, offer: Offer): Promise<{ chosen: ChosenTerms; refusal?: Refusal }> {
    const { caller, listing, target } = job;
    const options = {
      networks: this.#parts.networks,
      wallet: caller.walletAddress,
      preferredNetwork: caller.network,
    };
    const breach = (chosen: ChosenTerms): string | undefined => {
      const verdict = listing && compareTerms(listing, termsOf(target.url, chosen));
      return verdict?.kept === false ? verdict.reason : undefined;
    };
    const choice = chooseTerms(offer, { ...options, refuse: breach });
    if (choice.ok) return { chosen: choice.chosen };
    if (!listing)
      throw new ApiError("unsupported_payment_requirements", {
        detail: `The target accepts nothing this wallet can pay: ${choice.reasons.slice(0, 5).join("; ")}. Nothing was paid.`,
        extra: { reasons: choice.reasons },
      });
    const detail = `The live terms differ from the listing's. ${choice.reasons[0] ?? ""}`.trim();
    const refusal: Refusal = { code: "listing_mismatch", detail };
    if (job.input.dryRun !== true) await this.#flag(listing);
    const live = chooseTerms(offer, options);
    if (live.ok) return { chosen: live.chosen, refusal };
    // The listing's terms are gone and nothing payable took their place.
    throw await this.#refuse(job, refusal);
  }

  async #flag(listing: ListingPins): Promise<void> {
    await this.#parts.listings
      .flag(listing.id, "listing_mismatch")
      .catch((error: unknown) =>
        this.#parts.log.warn({ err: error, listingId: listing.id }, "listing not flagged"),
      );
  }

  /** A refusal of the target itself is a denial like any other: stored, and visible to the owner. */
  async #refused(job: Job, error: unknown): Promise<never> {
    if (!(error instanceof ApiError) || error.code !== "url_blocked") throw error;
    throw await this.#refuse(job, { code: "url_blocked", detail: error.message });
  }

  #refuse(job: Job, refusal: Refusal): Promise<ApiError> {
    const dryRun = job.input.dryRun === true;
    return this.#parts.payments.refuse({ ...this.#withoutTerms(job), refusal }, { dryRun });
  }

  /** For a refusal that came before any price or payee was known. */
  #withoutTerms({ caller, target, listing }: Job) {
    const network =
      this.#parts.networks.find((candidate) => candidate.id === caller.network) ??
      this.#parts.networks[0];
    if (!network) throw new Error("no network is configured");
    return {
      payer: caller,
      kind: "x402" as const,
      chainId: network.chainId,
      asset: network.usdc.address.toLowerCase() as Address,
      to: null,
      amountAtomic: 0n,
      requestId: caller.requestId,
      url: target.url.href,
      listingId: listing?.id,
    };
  }
}

const answer = (body: Record<string, unknown>): Answer => ({
  statusCode: 200,
  body,
  replayed: false,
});

function payRequest(
  { caller, target, listing, maxAmountAtomic }: Job,
  offer: Offer,
  chosen: ChosenTerms,
): PayRequest {
  const terms: PaymentTerms = {
    x402Version: offer.x402Version,
    accepted: chosen.terms.raw,
    ...(offer.resource ? { resource: offer.resource } : {}),
  };
  return {
    payer: caller,
    kind: "x402",
    chainId: chosen.network.chainId,
    asset: chosen.asset,
    to: chosen.payTo,
    amountAtomic: chosen.amountAtomic,
    maxAmountAtomic,
    validForSeconds: chosen.validForSeconds,
    requestId: caller.requestId,
    url: target.url.href,
    listingId: listing?.id,
    requirement: terms,
    idempotency: caller.idempotency,
    relay: false,
  };
}
