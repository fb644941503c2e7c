/**
 * x402-fetch: requests a target, pays its price within the agent's guardrails, and returns the data with a
 * receipt that the chain has confirmed. One request makes at most one payment.
 */
import type { Address } from "viem";
import { siteOf } from "../../core/site.ts";
import { ApiError } from "../../errors.ts";
import type { TargetRefusal } from "../guardrails/types.ts";
import type { ListingPins, ProbedTerms } from "../listings/index.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { approvalRequestOf, type PayRequest } from "../payments/agent-payments.ts";
import { offeredFor } from "../payments/evidence.ts";
import { inProgress, notKept, type Answer, type FreeResponse } from "../payments/idempotency.ts";
import type { PaymentPlan, Reservation } from "../payments/payment-plan.ts";
import type { ChosenTerms } from "./offer-rank.ts";
import {
  requestTarget,
  offerOf,
  probeTarget,
  type TargetResponse,
  type Offer,
  type ProbeOptions,
} from "./offer.ts";
import { deliver, isOver, resumeDelivery } from "./deliver.ts";
import {
  sentOnce,
  assertOneTarget,
  isSafe,
  prepare,
  type Prepared,
  type ClientDeps,
  type FetchCaller,
  type FetchInput,
  type PaymentTerms,
} from "./request.ts";
import { dryRunBody, freeBody } from "./answers.ts";
import { CacheLookup } from "./cache.ts";
import { LedgerEntry } from "./ledger.ts";
import { choosePayable, refusalOf, checkOffers, type Payable } from "./offer-choice.ts";
import { readableTarget, ToolTarget } from "./tool-call.ts";
import { freeResponse, afterPayment, signIn, cachedResponse, type Job } from "./free-response.ts";

const FRESH_MS = 2_000;
export class X402Client {
  readonly #deps: ClientDeps;

  constructor(deps: ClientDeps) {
    this.#deps = deps;
  }

  async fetch(input: FetchInput, caller: FetchCaller): Promise<Answer> {
    assertOneTarget(input);
    const idempotency = input.dryRun === true ? undefined : caller.idempotency;
    // Undefined when a stored response is replayed: then no request is sent.
    let entry: LedgerEntry | undefined;
    let cacheLookup: CacheLookup | undefined;
    const tool = input.mcp && new ToolTarget((request) => this.#deps.send(request), input.mcp);
    const prepared = async (): Promise<PaymentPlan> => {
      const { listingId } = input;
      const { listings } = this.#deps;
      const listing = listingId === undefined ? undefined : await listings.forFetch(listingId);
      const request = prepare(input, listing);
      entry = this.#enter(request, { input, caller, tool });
      const deps = { ...this.#deps, send: entry.send };
      if (input.maxAge !== undefined && input.dryRun !== true)
        cacheLookup = new CacheLookup(this.#deps.cache, caller.id, request.target);
      return this.#plan({ ...request, input, caller, listing, entry, cacheLookup, deps });
    };
    try {
      const answer = await this.#deps.flow.run(idempotency, prepared);
      await entry?.ended(answer, idempotency);
      return answer;
    } catch (error) {
      await entry?.failed(error).catch(
        // The caller's error matters more than a ledger row about it.
        (err: unknown) => this.#deps.log.warn({ err }, "the end of a fetch was not recorded"),
      );
      throw error;
    } finally {
      tool?.end();
      await cacheLookup
        ?.release()
        .catch((err: unknown) => this.#deps.log.warn({ err }, "a claim was not released"));
    }
  }

  #enter(
    { target }: Prepared,
    { input, caller, tool }: { input: FetchInput; caller: FetchCaller; tool?: ToolTarget },
  ): LedgerEntry {
    const start = {
      agentId: caller.id,
      apiKeyId: caller.apiKeyId,
      requestId: caller.requestId,
      kind: input.dryRun === true ? ("quote" as const) : ("fetch" as const),
      method: target.method,
      url: target.url,
      listingId: input.listingId,
    };
    const send: ClientDeps["send"] = (request) => this.#deps.send(request);
    const toolSend = input.dryRun === true ? tool?.quote : tool?.send;
    return new LedgerEntry(this.#deps.ledger, start, toolSend ?? send, caller.lease);
  }

  /** Reads and validates a URL's offer; nothing is paid. */
  probe(url: string, options: ProbeOptions): Promise<ProbedTerms> {
    return probeTarget(this.#deps, url, options);
  }

  #plan(job: Job): PaymentPlan {
    const { caller, target, deps } = job;
    return {
      agentId: caller.id,
      kind: "x402",
      relay: false,
      reserve: () => this.#reserve(job),
      isOver: (payment) => isOver(payment, target, this.#deps.settleWaitMs),
      resume: async (payment, storedNote, ref) => {
        // It is signed already: missing memory now does not change what was paid.
        await caller.lease.reserve().catch(() => {
          throw inProgress(payment.id);
        });
        await job.entry.begun();
        return resumeDelivery(deps, { target, caller, payment, storedNote, idempotency: ref });
      },
      ...(!isSafe(target) && { isSentOnce: sentOnce(target, caller.lease) }),
      returnFreeResponse: (freeAnswer) => this.#returnFreeResponse(job, freeAnswer),
    };
  }

  async #reserve(job: Job): Promise<Reservation> {
    const { caller, input, listing, target } = job;
    if (listing && listing.status !== "active") throw new ApiError("listing_not_active");
    const { entry, deps } = job;
    const isQuote = input.dryRun === true;
    await this.#assertMayFetch(job);
    const cached = await cachedResponse(job);
    if (cached) return cached;
    // Runs while the target processes the request.
    const room = !isQuote && caller.idempotency && entry.assertRoomToKeep(caller.idempotency);
    if (room) room.catch(() => undefined);
    const balanceFor = this.#readBalanceAhead(caller);
    const answered = isQuote
      ? await this.#requestQuote(job)
      : await requestTarget((request) => deps.send(request), target).catch((error: unknown) =>
          this.#refused(job, error),
        );
    await entry.begun();
    if (answered.kind === "free") return freeResponse(job, answered.seen);
    const { offer } = answered;
    const { choice, refusal } = await this.#choose(job, offer);
    const requestFor = (terms: ChosenTerms, offered?: unknown): PayRequest => ({
      ...payRequest(job, offer, { terms, offered }),
      ...(refusal && { refusal }),
      balance: balanceFor(terms.network),
    });
    const checked = await checkOffers(job, choice, (terms) => requestFor(terms));
    const chosen = checked.chosen.payable;
    const offered = offeredFor(offer, chosen.terms);
    const request = requestFor(chosen, offered);
    if (isQuote) {
      const verdict = checked.verdict ?? (await this.#deps.agentReserve.evaluate(request));
      if (verdict.error) checked.chosen.refused = refusalOf(verdict.error);
      const { offers } = choice;
      const details = { verdict, offer, offers, networks: deps.networks, maxBytes: deps.maxBytes };
      return { kind: "free", body: dryRunBody(target, chosen, details) };
    }
    const signedIn = refusal ? undefined : await signIn(job, offer, chosen);
    if (signedIn) return signedIn;
    await room;
    await caller.lease.reserve();
    // The target requested payment, so it has not acted on the request yet.
    if (!isSafe(target) && !caller.idempotency?.joins) await deps.flow.release(caller.idempotency);
    const reserved = await this.#deps.agentReserve.reserve(request).catch((error: unknown) => {
      throw error instanceof ApiError ? checked.withOffers(error) : error;
    });
    if (reserved.kind === "denied")
      return { ...reserved, error: checked.withOffers(reserved.error) };
    if (reserved.kind !== "reserved") return reserved;
    const { paymentId, remainingAtomic } = reserved;
    return {
      ...reserved,
      deliver: async (authorization) => {
        await this.#deps.fault("submitted");
        return deliver(deps, {
          key: { agentId: caller.id, paymentId },
          target,
          offer,
          accepted: chosen.terms,
          offered,
          fromMs: Date.now(),
          authorization,
          facts: {
            network: chosen.network.id,
            payTo: chosen.payTo,
            amountAtomic: chosen.amountAtomic,
            paymentId,
          },
          remainingAtomic,
          idempotency: caller.idempotency,
          ...afterPayment(job, { paymentId, offer }),
        });
      },
    };
  }

  /**
   * An agent restricted to its sites sends nothing to others: no price request, no free fetch, and no DNS
   * lookup.
   */
  async #assertMayFetch(job: Job): Promise<void> {
    const { caller, target } = job;
    if (caller.fetch === "any" || (await this.#deps.hasSite(caller.id, siteOf(target.url)))) return;
    throw await this.#refuse(job, { code: "origin_not_allowed" });
  }

  /**
   * Most targets request payment on the agent's own network, so its balance is read while the target responds.
   * A reading that is too old is not used.
   */
  #readBalanceAhead(caller: FetchCaller) {
    const own = this.#deps.networks.find(({ id }) => id === caller.network);
    const startedMs = performance.now();
    // On failure the balance is read again where it is needed, and that error is reported.
    const early =
      own && this.#deps.agentReserve.readBalance(own.chainId, caller).catch(() => undefined);
    return (network: NetworkFacts) =>
      network.id === own?.id && performance.now() - startedMs < FRESH_MS ? early : undefined;
  }

  /**
   * A quote sends only GET or HEAD, or reads a list of MCP tools. A listing with another method is not
   * requested: its terms come from the listing's own probe, which its host agreed to.
   */
  async #requestQuote(job: Job): Promise<TargetResponse> {
    const { listing, target, deps } = job;
    if (isSafe(target) || target.mcp)
      return requestTarget((request) => deps.send(request), target).catch((error: unknown) =>
        this.#refused(job, error),
      );
    const offer = listing && offerOf(listing);
    if (!offer) throw new ApiError("listing_not_active");
    return { kind: "offer", offer };
  }

  /** Only a digest of a free response is stored. A GET is requested again, which is safe; this never pays. */
  async #returnFreeResponse(job: Job, freeAnswer: FreeResponse): Promise<Record<string, unknown>> {
    const { caller, target, deps, entry } = job;
    if (!isSafe(target)) throw notKept(freeAnswer);
    await this.#assertMayFetch(job);
    const answered = await requestTarget((request) => deps.send(request), target);
    await entry.begun();
    if (answered.kind === "offer")
      throw notKept(
        freeAnswer,
        "The earlier request with this key was free, and the target now requires payment. Use a new key to pay.",
      );
    return freeBody(target, answered.seen, await this.#deps.remainingOf(caller.id));
  }

  async #choose(job: Job, offer: Offer): Promise<{ choice: Payable; refusal?: TargetRefusal }> {
    const { listing, input } = job;
    const { choice, refusal } = choosePayable(job, offer);
    if (listing && refusal && input.dryRun !== true) await this.#flag(listing);
    if (choice) return { choice, ...(refusal && { refusal }) };
    // The listing's terms are gone, and no payable terms replaced them.
    throw await this.#refuse(job, refusal);
  }

  async #flag(listing: ListingPins): Promise<void> {
    await this.#deps.listings
      .flag(listing.id, "listing_mismatch")
      .catch((error: unknown) =>
        this.#deps.log.warn({ err: error, listingId: listing.id }, "listing not flagged"),
      );
  }

  /** A blocked target URL is a denial like any other: stored, and visible to the owner. */
  async #refused(job: Job, error: unknown): Promise<never> {
    if (!(error instanceof ApiError) || error.code !== "url_blocked") throw error;
    throw await this.#refuse(job, { code: "url_blocked", detail: error.message });
  }

  #refuse(job: Job, refusal: TargetRefusal): Promise<ApiError> {
    const dryRun = job.input.dryRun === true;
    const request = { ...this.#withoutTerms(job), refusal };
    return this.#deps.agentReserve.refuse(request, { dryRun });
  }

  /** For a refusal before any price or payee was known. */
  #withoutTerms({ caller, target, listing }: Job) {
    const network =
      this.#deps.networks.find((candidate) => candidate.id === caller.network) ??
      this.#deps.networks[0];
    if (!network) throw new Error("no network is configured");
    return {
      payer: caller,
      kind: "x402" as const,
      chainId: network.chainId,
      asset: network.usdc.address.toLowerCase() as Address,
      to: null,
      amountAtomic: 0n,
      requestId: caller.requestId,
      site: siteOf(target.url),
      url: readableTarget(target.url, target.mcp),
      listingId: listing?.id,
    };
  }
}

function payRequest(
  { caller, input, target, listing, maxAmountAtomic }: Job,
  offer: Offer,
  { terms: chosen, offered }: { terms: ChosenTerms; offered: unknown },
): PayRequest {
  const terms: PaymentTerms = {
    x402Version: offer.x402Version,
    ...(chosen.terms.protocol === "mpp" && { protocol: "mpp" }),
    accepted: chosen.terms.raw,
    ...(offer.resource ? { resource: offer.resource } : {}),
    ...(offered !== undefined && { offered }),
  };
  return {
    payer: caller,
    kind: "x402",
    chainId: chosen.network.chainId,
    asset: chosen.asset,
    to: chosen.payTo,
    // The same URL with and without the proof; redirects are not followed.
    site: siteOf(target.url),
    amountAtomic: chosen.amountAtomic,
    maxAmountAtomic,
    scheme: chosen.scheme,
    extra: chosen.terms.extra,
    validForSeconds: chosen.validForSeconds,
    ...(chosen.terms.nonce !== undefined && { nonce: chosen.terms.nonce }),
    ...approvalRequestOf(input),
    requestId: caller.requestId,
    url: readableTarget(target.url, target.mcp),
    listingId: listing?.id,
    requirement: terms,
    idempotency: caller.idempotency,
  };
}
