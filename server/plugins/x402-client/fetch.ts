/**
 * x402-fetch: requests a target, pays its price within the agent's guardrails, and returns the data with a
 * receipt that the chain has confirmed. One request makes at most one payment. `#run` shows the request in the
 * order in which it happens:
 *
 * begin   what an earlier request with the key did
 * ask     the target, for its content or its price
 * choose  among the seller's offers
 * reserve, sign, accept   as for a spend (payments/steps.ts); a process that dies here is resumed there
 * deliver the proof to the seller. If the process dies after this, the next request with the key continues with
 *         the seller's response, or shows the same proof again where that has no effect
 * confirm on chain that it was paid, or cancel it
 * keep    the response with the key, with what the target did
 */
import type { Address } from "viem";
import { siteOf } from "../../core/site.ts";
import { ApiError } from "../../errors.ts";
import { deniedBy } from "../agents/denied-store.ts";
import { hasSite } from "../agents/payees-store.ts";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { TargetRefusal } from "../guardrails/types.ts";
import type { ProbedTerms } from "../listings/index.ts";
import { offeredFor } from "../payments/evidence.ts";
import {
  inProgress,
  notKept,
  type Answer,
  type Begun,
  type Call,
  type FreeResponse,
} from "../payments/idempotency.ts";
import type { AgentReservation, ChannelReservation, PayRequest } from "../payments/reserve.ts";
import {
  digestOf,
  dryRunBody,
  freeBody,
  freeQuoteBody,
  neverPaidError,
  signedInBody,
} from "./answers.ts";
import {
  acceptedAgain,
  offerOf,
  probeTarget,
  requestTarget,
  sendProbe,
  type ProbeOptions,
  type TargetResponse,
} from "./ask.ts";
import { CacheLookup } from "./cache.ts";
import { channelBusy, shownBefore, signForChannel } from "./channel.ts";
import {
  checkOffers,
  choosePayable,
  payRequest,
  refusalOf,
  withOffers,
  type CheckedOffers,
  type ChosenTerms,
  type EarlyBalance,
} from "./choose.ts";
import { confirm } from "./confirm.ts";
import {
  deliver,
  lostResponse,
  notedResponse,
  noteResponse,
  type ProofResponse,
} from "./deliver.ts";
import type {
  FetchCaller,
  FetchDeps,
  Job,
  PaymentTerms,
  SignedCommon,
  SignedPayment,
} from "./job.ts";
import { LedgerEntry } from "./ledger.ts";
import { keepAndRecord } from "./record.ts";
import {
  assertOneTarget,
  isSafe,
  longestFetch,
  mayHaveActed,
  prepare,
  readableTarget,
  type FetchInput,
} from "./request.ts";
import { offersSignIn, signIn } from "./sign-in.ts";
import type { Offer } from "./terms.ts";
import { ToolTarget } from "./tool-call.ts";

/** What is to be paid: a price that was chosen, or an answer that needs no payment. */
type Found = { kind: "answer"; answer: Answer } | Price;

interface Price {
  kind: "price";
  offer: Offer;
  checked: CheckedOffers;
  chosen: ChosenTerms;
  /** The seller's signed offer for the chosen terms. */
  offered: unknown;
  request: PayRequest;
}

/**
 * Time for everything besides the target's responses and the chain: a second attempt, waiting for memory, the
 * database.
 */
const CLAIM_SPARE_MS = 30_000;
/** How often a busy channel is tried; the delay grows. */
const FIRST_PAUSE_MS = 4;
const LAST_PAUSE_MS = 250;

type SignedBefore = Extract<Begun, { kind: "signed" }>;

export class X402Client {
  readonly #deps: FetchDeps;

  constructor(deps: FetchDeps) {
    this.#deps = deps;
  }

  async fetch(input: FetchInput, caller: FetchCaller): Promise<Answer> {
    assertOneTarget(input);
    const ref = input.dryRun === true ? undefined : caller.idempotency;
    const limits = { agentId: caller.id, ...longestFetch(input, this.#deps.settleWaitMs) };
    let begun = await this.#deps.calls.begin(ref, limits);
    // A stored response is replayed: no request is sent, so the fetch ledger has no entry for it.
    if (begun.kind === "answered") return begun.answer;
    const job = await this.#open(input, caller);
    try {
      for (;;) {
        const answer = begun.kind === "answered" ? begun.answer : await this.#run(job, begun);
        if (answer) {
          await job.entry.ended(answer);
          return answer;
        }
        begun = await this.#deps.calls.begin(ref, limits);
      }
    } catch (error) {
      await job.entry.failed(error).catch(
        // The caller's error matters more than a ledger row about it.
        (err: unknown) => this.#deps.log.warn({ err }, "the end of a fetch was not recorded"),
      );
      throw error;
    } finally {
      job.tool?.end();
      await job.cacheLookup
        ?.release()
        .catch((err: unknown) => this.#deps.log.warn({ err }, "a claim was not released"));
    }
  }

  async #open(input: FetchInput, caller: FetchCaller): Promise<Job> {
    const deps = this.#deps;
    const listing =
      input.listingId === undefined ? undefined : await deps.listings.forFetch(input.listingId);
    const prepared = prepare(input, listing);
    const { target } = prepared;
    const isQuote = input.dryRun === true;
    const tool = input.mcp && new ToolTarget(deps.send, input.mcp);
    const send = (isQuote ? tool?.quote : tool?.send) ?? deps.send;
    const start = {
      agentId: caller.id,
      apiKeyId: caller.apiKeyId,
      requestId: caller.requestId,
      kind: isQuote ? ("quote" as const) : ("fetch" as const),
      method: target.method,
      url: target.url,
      listingId: input.listingId,
      ref: isQuote ? undefined : caller.idempotency,
    };
    return {
      ...prepared,
      deps,
      input,
      caller,
      listing,
      tool,
      entry: new LedgerEntry(deps.pool, start, send, caller.lease),
      cacheLookup:
        input.maxAge !== undefined && !isQuote
          ? new CacheLookup(deps, caller.id, target)
          : undefined,
    };
  }

  /** Undefined: an identical call without a key reserved first, or moved nothing. Begin again. */
  async #run(job: Job, begun: Exclude<Begun, { kind: "answered" }>): Promise<Answer | undefined> {
    if (begun.kind === "free") return this.#freeAgain(job, begun.freeResponse);
    if (begun.kind === "signed") return this.#resume(job, begun);
    const { call } = begun;
    const { deps } = job;
    const found = await this.#find(job, call);
    if (found.kind === "answer") return found.answer;
    const { channel, payTo } = found.chosen;
    const pay = () => this.#pay(job, call, found);
    // The database says whose turn it is; here they only wait in order.
    if (!channel) return pay();
    const { receiverAuthorizer, withdrawDelay } = channel;
    const channelOf = [job.caller.id, payTo, receiverAuthorizer, withdrawDelay].join(" ");
    return deps.channelLock.take(channelOf, pay, job.target.timeoutMs);
  }

  /**
   * Finds the price, or an answer without a payment. A request that its target may act on holds its key meanwhile,
   * so that it is sent once.
   */
  async #find(job: Job, call: Call): Promise<Found> {
    const { listing, target, caller } = job;
    if (listing && listing.status !== "active") throw new ApiError("listing_not_active");
    if (!isSafe(target)) await call.claim();
    try {
      const found = await this.#askAndChoose(job, call);
      // The target requested payment, so it has not acted on the request yet. Reserving claims the key again.
      if (found.kind === "price") await call.unclaim();
      return found;
    } catch (error) {
      await call.failClaimed(error, (failed) => mayHaveActed(failed, caller.lease));
      throw error;
    }
  }

  async #askAndChoose(job: Job, call: Call): Promise<Found> {
    const { caller, input, target, entry, deps } = job;
    await this.#assertMayFetch(job);
    const cached = await this.#cached(job);
    if (cached) return notStored(cached);
    // Read while the target processes the request.
    const early = this.#readBalanceEarly(job);

    const response = await this.#ask(job);
    await entry.begun();
    if (input.dryRun === true) return notStored(await this.#quote(job, response, early));
    if (response.kind === "free") {
      const body = freeBody(target, response.seen, await deps.remainingOf(caller.id));
      return { kind: "answer", answer: await call.finishFree(body, digestOf(response.seen)) };
    }

    const { refusal, ...price } = await this.#choose(job, response.offer, early);
    const signedIn = refusal ? undefined : await signIn(job, price.offer, price.chosen);
    if (signedIn) {
      const body = signedInBody(target, signedIn, await deps.remainingOf(caller.id));
      if (isSafe(target)) return notStored(body);
      // A request that had an effect is not repeated with the same key.
      return { kind: "answer", answer: await call.finishFree(body, digestOf(signedIn)) };
    }
    if (call.ref) await entry.assertRoomToKeep();
    await caller.lease.reserve();
    return { kind: "price", ...price };
  }

  /**
   * Nothing is sent to a site that the owner denies, and an agent restricted to its sites sends nothing to others: no
   * price request, no free fetch, and no DNS lookup.
   */
  async #assertMayFetch(job: Job): Promise<void> {
    const { caller, target, deps } = job;
    const site = siteOf(target.url);
    // SQL names the owner's entry. If it was removed meanwhile, this is refused all the same.
    if (caller.hasDenied && (await deniedBy(deps.db, caller.ownerId, { site })) !== undefined)
      throw await this.#refuse(job, { code: "url_blocked" });
    if (caller.fetch === "any" || (await hasSite(deps.db, caller.id, site))) return;
    throw await this.#refuse(job, { code: "origin_not_allowed" });
  }

  /** Records a refusal before any price or payee was known. Returns its error. */
  #refuse(
    { caller, target, listing, input, deps }: Job,
    refusal: TargetRefusal,
  ): Promise<ApiError> {
    const { networks, agentReserve } = deps;
    const network = networks.find(({ id }) => id === caller.network) ?? networks[0];
    if (!network) throw new Error("no network is configured");
    return agentReserve.refuse(
      {
        refusal,
        payer: caller,
        kind: "x402",
        chainId: network.chainId,
        asset: network.usdc.address.toLowerCase() as Address,
        to: null,
        amountAtomic: 0n,
        requestId: caller.requestId,
        site: siteOf(target.url),
        url: readableTarget(target.url, target.mcp),
        listingId: listing?.id,
        task: input.task,
      },
      { dryRun: input.dryRun === true },
    );
  }

  /**
   * Returns content that was paid for before, without a request. While another call of this agent pays for the
   * same content, waits for that call.
   */
  async #cached(job: Job): Promise<Record<string, unknown> | undefined> {
    const { cacheLookup, input, target, caller, entry, deps } = job;
    if (!cacheLookup || input.maxAge === undefined) return undefined;
    // Three requests: for the price, the sign-in and the proof.
    const claimMs = 3 * target.timeoutMs + deps.settleWaitMs + CLAIM_SPARE_MS;
    const fresh = await cacheLookup.look(
      { maxAgeSeconds: input.maxAge, claimSeconds: Math.ceil(claimMs / 1_000) },
      () => caller.lease.reserve(),
    );
    if (!fresh) return undefined;
    await entry.begun();
    return cacheLookup.bodyOf(fresh, await deps.remainingOf(caller.id));
  }

  /**
   * Most targets request payment on the agent's own network, so its balance is read while the target responds. A channel
   * rarely needs it.
   */
  #readBalanceEarly({ caller, deps }: Job): EarlyBalance | undefined {
    if (caller.usesChannels) return undefined;
    const { networks, agentReserve } = deps;
    const own = networks.find(({ id }) => id === caller.network);
    if (!own) return undefined;
    // On failure the balance is read again where it is needed, and that error is reported.
    const balance = agentReserve.readBalance(own.chainId, caller).catch(() => undefined);
    return { networkId: own.id, startedMs: performance.now(), balance };
  }

  /**
   * A quote sends only GET or HEAD, or reads a list of MCP tools. A listing with another method is not
   * requested: its terms come from the listing's own probe, which its host agreed to.
   */
  async #ask(job: Job): Promise<TargetResponse> {
    const { input, listing, target, entry } = job;
    if (input.dryRun === true && !isSafe(target) && !target.mcp) {
      const offer = listing && offerOf(listing);
      if (!offer) throw new ApiError("listing_not_active");
      return { kind: "offer", offer };
    }
    try {
      return await requestTarget(entry.send, target);
    } catch (error) {
      // A blocked target URL is a denial like any other: stored, and visible to the owner.
      if (!(error instanceof ApiError) || error.code !== "url_blocked") throw error;
      throw await this.#refuse(job, { code: "url_blocked", detail: error.message });
    }
  }

  /** What a call without `dryRun` would pay now. */
  async #quote(
    job: Job,
    response: TargetResponse,
    early: EarlyBalance | undefined,
  ): Promise<Record<string, unknown>> {
    const { caller, target, deps } = job;
    const { networks, maxBytes } = deps;
    if (response.kind === "free") {
      const remaining = await deps.remainingOf(caller.id);
      return freeQuoteBody(target, response.seen, { remaining, maxBytes });
    }
    const { offer, checked, chosen, request } = await this.#choose(job, response.offer, early);
    const verdict = checked.verdict ?? (await deps.agentReserve.evaluate(request));
    if (verdict.error) checked.chosen.refused = refusalOf(verdict.error);
    const quote = { verdict, offer, offers: checked.offers, networks, maxBytes };
    return dryRunBody(target, chosen, quote);
  }

  /** Among the seller's offers. `refusal`: the agent's rules do not allow the chosen one. */
  async #choose(job: Job, offer: Offer, early: EarlyBalance | undefined) {
    const { choice, refusal } = await this.#choosePayable(job, offer);
    const terms = { offer, ...(refusal && { refusal }), ...(early && { early }) };
    const checked = await checkOffers(job, terms, choice);
    const chosen = checked.chosen.payable;
    const offered = offeredFor(offer, chosen.terms);
    const request = payRequest(job, terms, chosen, offered);
    return { offer, refusal, checked, chosen, offered, request };
  }

  async #choosePayable(job: Job, offer: Offer) {
    const { listing, input, deps } = job;
    const signer = await deps.channels.signer();
    const { choice, refusal } = choosePayable(job, offer, signer);
    if (listing && refusal && input.dryRun !== true)
      await deps.listings
        .flag(listing.id)
        .catch((err: unknown) =>
          deps.log.warn({ err, listingId: listing.id }, "listing not flagged"),
        );
    if (choice) return { choice, refusal };
    // The listing's terms are gone, and no payable terms replaced them.
    throw await this.#refuse(job, refusal);
  }

  async #pay(job: Job, call: Call, found: Price): Promise<Answer | undefined> {
    const { deps } = job;
    const reserved = await this.#reserve(job, found);
    if (reserved.kind === "through_channel")
      return this.#payThroughChannel(job, call, found, reserved);
    if (reserved.kind !== "reserved") return call.notReserved(reserved);
    const authorization = await deps.steps.sign(reserved, call);
    await deps.steps.accept(reserved, { kind: "x402", relay: false, authorization });
    await deps.fault("submitted");
    return this.#deliver(job, { ...signedNow(job, call, found, reserved), authorization });
  }

  /** A channel serves one request at a time: the agent's other requests wait for it, as long as for their target. */
  async #reserve({ deps, target }: Job, { checked, request }: Price) {
    const { agentReserve, networks } = deps;
    const until = performance.now() + target.timeoutMs;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LAST_PAUSE_MS)) {
      const reserved = await agentReserve.reserveFetch(request).catch((error: unknown) => {
        throw error instanceof ApiError ? withOffers(checked, networks, error) : error;
      });
      if (reserved.kind === "denied") throw withOffers(checked, networks, reserved.error);
      if (reserved.kind !== "channel_busy") return reserved;
      if (performance.now() > until) throw channelBusy(reserved.paymentId);
      await deps.sleep(pauseMs);
    }
  }

  /** The same steps; the seller gets a voucher of the channel in place of an authorization. */
  async #payThroughChannel(job: Job, call: Call, found: Price, reserved: ChannelReservation) {
    const { chosen } = found;
    if (!chosen.channel) throw new Error("a channel was reserved for another kind of offer");
    const through = await signForChannel(job, call, chosen.channel, { reserved, chosen });
    await job.deps.fault("submitted");
    return this.#deliver(job, { ...signedNow(job, call, found, reserved), through });
  }

  async #deliver(job: Job, payment: SignedPayment): Promise<Answer | undefined> {
    const response = await deliver(job, payment);
    await job.deps.fault("answered");
    // A channel's payment needs no proof of the chain, so its response is stored at once.
    const noting = payment.through ? undefined : noteResponse(job, payment, response);
    return this.#finish(job, payment, response, noting);
  }

  /** `noting`: the seller's response is stored while the chain is read. */
  async #finish(
    job: Job,
    payment: SignedPayment,
    response: ProofResponse,
    noting?: Promise<void>,
  ): Promise<Answer | undefined> {
    const { call, key } = payment;
    const [confirmed] = await Promise.all([confirm(job, payment, response), noting]);
    await job.deps.fault("confirmed");
    if (!confirmed) return undefined;
    if (await call.mustPayItself(key, confirmed.result)) return undefined;
    const kept = await keepAndRecord(job, payment, confirmed);
    await job.deps.fault("kept");
    return call.answer(kept);
  }

  /** Only a digest of a free response is stored. A GET is requested again, which is safe; this never pays. */
  async #freeAgain(job: Job, freeResponse: FreeResponse): Promise<Answer> {
    const { caller, target, entry, deps } = job;
    if (!isSafe(target)) throw notKept(freeResponse);
    await this.#assertMayFetch(job);
    const response = await requestTarget(entry.send, target);
    await entry.begun();
    if (response.kind === "offer")
      throw notKept(
        freeResponse,
        "The earlier request with this key was free, and the target now requires payment. Use a new key to pay.",
      );
    const body = freeBody(target, response.seen, await deps.remainingOf(caller.id));
    return { statusCode: 200, body, replayed: false };
  }

  /** An earlier request with the key signed a payment and did not end. */
  async #resume(job: Job, begun: SignedBefore): Promise<Answer | undefined> {
    const { caller, entry, target } = job;
    const { call } = begun;
    // Missing memory now does not change what was paid.
    await caller.lease.reserve().catch(() => {
      throw inProgress(begun.payment.id);
    });
    await entry.begun();
    const key = { agentId: caller.id, paymentId: begun.payment.id };
    const response = notedResponse(begun.storedNote);
    if (begun.payment.status === "voided" && !response)
      return call.answer(
        await call.keep(key, { kind: "failed", error: neverPaidError(key.paymentId) }),
      );
    const wasDelivered = response?.kind === "delivered";
    const payment = await this.#signedBefore(job, begun, wasDelivered);
    if (response) return this.#finish(job, payment, response);
    // Without its response, the same proof is shown once more, if a repetition has no effect.
    return isSafe(target)
      ? this.#deliver(job, payment)
      : this.#finish(job, payment, lostResponse(target));
  }

  /** The signed payment that an earlier request of this key left without an answer. */
  async #signedBefore(
    job: Job,
    { call, payment }: SignedBefore,
    wasDelivered: boolean,
  ): Promise<SignedPayment> {
    const { caller, target, deps } = job;
    const { id: paymentId, amountAtomic, counterparty: payTo } = payment;
    const terms = payment.requirement as PaymentTerms;
    const accepted = acceptedAgain(terms);
    const proof = await this.#proofBefore(job, payment, wasDelivered);
    if (!proof || !accepted || payTo === null) throw inProgress(paymentId);
    return {
      key: { agentId: caller.id, paymentId },
      call,
      offer: { ...terms, resource: terms.resource, extensions: undefined },
      accepted,
      offered: terms.offered,
      // The first offer's extensions are not stored. The record of paid sites is only used where a seller offers
      // sign-in again.
      signsIn: !target.mcp,
      fromMs: payment.createdAt.getTime(),
      facts: {
        network: deps.networkOf(Number(payment.chainId)),
        payTo,
        // The price, of which a payment through a channel counts only what its ceiling grew.
        amountAtomic: proof.through?.priceAtomic ?? amountAtomic,
        paymentId,
      },
      remainingAtomic: await deps.remainingOf(caller.id),
      ...proof,
    };
  }

  async #proofBefore(job: Job, { id, policy }: SignedBefore["payment"], wasDelivered: boolean) {
    if (policy?.["channel"] !== undefined) {
      const through = await shownBefore(job, id, wasDelivered);
      return through && { through };
    }
    const settlement = await job.deps.settlement.find(id);
    return settlement && { authorization: settlement.authorization };
  }

  /** Reads and validates a URL's offer; nothing is paid. */
  probe(url: string, options: ProbeOptions): Promise<ProbedTerms> {
    return probeTarget(this.#deps, url, options);
  }

  /** The raw response to a probe's request, which throws OutboundError. */
  sendProbe(target: OutboundRequest): Promise<OutboundResponse> {
    return sendProbe(this.#deps.send, target);
  }
}

/** It costs nothing now, and the key stays unused: the same call may have to pay later. */
const notStored = (body: Record<string, unknown>): Found => ({
  kind: "answer",
  answer: { statusCode: 200, body, replayed: false },
});

function signedNow(
  { caller, target }: Job,
  call: Call,
  { offer, chosen, offered }: Price,
  { paymentId, remainingAtomic }: Pick<AgentReservation, "paymentId" | "remainingAtomic">,
): SignedCommon {
  const { network, payTo, amountAtomic } = chosen;
  return {
    key: { agentId: caller.id, paymentId },
    call,
    offer,
    accepted: chosen.terms,
    offered,
    signsIn: offersSignIn(offer) && !target.mcp,
    fromMs: Date.now(),
    facts: { network: network.id, payTo, amountAtomic, paymentId },
    remainingAtomic,
  };
}
