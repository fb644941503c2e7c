/**
 * x402-fetch: asks a target, pays what it demands within the agent's guardrails, and answers with
 * the data and a receipt the chain has confirmed. One request, at most one payment.
 */
import type { Address } from "viem";
import { ApiError } from "../../errors.ts";
import type { OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { TargetRefusal } from "../guardrails/types.ts";
import { compareTerms, type ListingPins, type ProbedTerms } from "../listings/index.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { PayRequest } from "../payments/agent-payments.ts";
import type { Answer } from "../payments/idempotency.ts";
import type { PayOrder, Reservation } from "../payments/pay.ts";
import {
  askTarget,
  chooseTerms,
  termsOf,
  probeTarget,
  type ChosenTerms,
  type Offer,
  type ProbeOptions,
} from "./offer.ts";
import { deliver, isOver, resumeDelivery } from "./deliver.ts";
import {
  assertOneTarget,
  prepare,
  type Prepared,
  type ClientDeps,
  type FetchCaller,
  type FetchInput,
  type PaymentTerms,
} from "./request.ts";
import { dryRunBody, freeBody } from "./answers.ts";

type Job = Prepared & {
  input: FetchInput;
  caller: FetchCaller;
  listing: ListingPins | undefined;
};

const FRESH_MS = 2_000;

export class X402Client {
  readonly #deps: ClientDeps;

  constructor(deps: ClientDeps) {
    this.#deps = deps;
  }

  async fetch(input: FetchInput, caller: FetchCaller): Promise<Answer> {
    assertOneTarget(input);
    const idempotency = input.dryRun === true ? undefined : caller.idempotency;
    return this.#deps.flow.run(idempotency, async () => {
      const { listingId } = input;
      const { listings } = this.#deps;
      const listing = listingId === undefined ? undefined : await listings.forFetch(listingId);
      const job = { ...prepare(input, listing), input, caller, listing };
      return this.#order(job);
    });
  }

  /** What a URL asks for, parsed and validated; nothing is paid. */
  probe(url: string, options: ProbeOptions): Promise<ProbedTerms> {
    return probeTarget(this.#deps, url, options);
  }

  #order(job: Job): PayOrder {
    const { caller, target } = job;
    return {
      agentId: caller.id,
      kind: "x402",
      relay: false,
      reserve: () => this.#reserve(job),
      isOver: (payment) => isOver(payment, target, this.#deps.settleWaitMs),
      resume: (payment) => resumeDelivery(this.#deps, { target, caller, payment }),
    };
  }

  async #reserve(job: Job): Promise<Reservation> {
    const { caller, input, listing, target } = job;
    if (listing && listing.status !== "active") throw new ApiError("listing_not_active");
    const balanceFor = this.#readBalanceAhead(caller);
    const asked = await askTarget((request) => this.#deps.ask(request), target).catch(
      (error: unknown) => this.#refused(job, error),
    );
    if (asked.kind === "free") return this.#free(job, asked.response);
    const { offer } = asked;
    const { chosen, refusal } = await this.#choose(job, offer);
    const balance = balanceFor(chosen.network);
    const request = { ...payRequest(job, offer, chosen), refusal, balance };
    if (input.dryRun === true) {
      const verdict = await this.#deps.agentReserve.evaluate(request);
      return { kind: "unpaid", body: dryRunBody(target, chosen, verdict) };
    }
    const reserved = await this.#deps.agentReserve.reserve(request);
    if (reserved.kind !== "reserved") return reserved;
    const { paymentId, remainingAtomic } = reserved;
    return {
      ...reserved,
      deliver: async (authorization) => {
        await this.#deps.fault("submitted");
        return deliver(this.#deps, {
          key: { agentId: caller.id, paymentId },
          target,
          offer,
          accepted: chosen.terms,
          authorization,
          facts: {
            network: chosen.network.id,
            payTo: chosen.payTo,
            amountAtomic: chosen.amountAtomic,
            paymentId,
          },
          remainingAtomic,
          hasKey: caller.idempotency !== undefined,
          listingId: listing?.id,
        });
      },
    };
  }

  /**
   * Most targets that answer want to be paid on the agent's own network: its balance is read while the
   * target thinks. One read too long ago is not used.
   */
  #readBalanceAhead(caller: FetchCaller) {
    const own = this.#deps.networks.find(({ id }) => id === caller.network);
    const startedMs = performance.now();
    // Whoever needs it and finds none reads it again, and hears what is wrong.
    const early =
      own && this.#deps.agentReserve.readBalance(own.chainId, caller).catch(() => undefined);
    return (network: NetworkFacts) =>
      network.id === own?.id && performance.now() - startedMs < FRESH_MS ? early : undefined;
  }

  async #free({ caller, target, input }: Job, response: OutboundResponse): Promise<Reservation> {
    const body = freeBody(target, response, await this.#deps.remainingOf(caller.id));
    if (input.dryRun === true) Object.assign(body, { dryRun: true, price: "0" });
    return { kind: "unpaid", body };
  }

  /** The terms to pay; or, for a listing that is not kept, the live terms and why they are refused. */
  async #choose(job: Job, offer: Offer): Promise<{ chosen: ChosenTerms; refusal?: TargetRefusal }> {
    const { caller, listing, target } = job;
    const options = {
      networks: this.#deps.networks,
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
    const refusal: TargetRefusal = { code: "listing_mismatch", detail };
    if (job.input.dryRun !== true) await this.#flag(listing);
    const live = chooseTerms(offer, options);
    if (live.ok) return { chosen: live.chosen, refusal };
    // The listing's terms are gone and nothing payable took their place.
    throw await this.#refuse(job, refusal);
  }

  async #flag(listing: ListingPins): Promise<void> {
    await this.#deps.listings
      .flag(listing.id, "listing_mismatch")
      .catch((error: unknown) =>
        this.#deps.log.warn({ err: error, listingId: listing.id }, "listing not flagged"),
      );
  }

  /** A refusal of the target itself is a denial like any other: stored, and visible to the owner. */
  async #refused(job: Job, error: unknown): Promise<never> {
    if (!(error instanceof ApiError) || error.code !== "url_blocked") throw error;
    throw await this.#refuse(job, { code: "url_blocked", detail: error.message });
  }

  #refuse(job: Job, refusal: TargetRefusal): Promise<ApiError> {
    const dryRun = job.input.dryRun === true;
    const request = { ...this.#withoutTerms(job), refusal };
    return this.#deps.agentReserve.refuse(request, { dryRun });
  }

  /** For a refusal that came before any price or payee was known. */
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
      url: target.url.href,
      listingId: listing?.id,
    };
  }
}

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
  };
}
