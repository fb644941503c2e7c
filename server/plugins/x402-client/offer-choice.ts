/**
 * Chooses among several payable offers: checks policy and balance of each in the order of rank, without
 * writing.
 * The chosen one is then reserved, where the guardrails decide again. The results of the other checks are
 * returned to the caller.
 */
import { getAddress } from "viem";
import { parseAddress } from "../../core/foreign-text.ts";
import { formatAtomic, parseAtomic } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import { ApiError } from "../../errors.ts";
import { findScheme } from "../../schemes/index.ts";
import type { TargetRefusal, Verdict } from "../guardrails/types.ts";
import { compareTerms } from "../listings/index.ts";
import type { PayRequest, WalletBalance } from "../payments/agent-payments.ts";
import {
  chooseTerms,
  termsOf,
  type Candidate,
  type Choice,
  type ChosenTerms,
  type OfferRefusal,
  type ReadOffer,
} from "./offer-rank.ts";
import type { Offer } from "./offer.ts";
import type { Job } from "./free-response.ts";

export type Payable = Extract<Choice, { ok: true }>;

/**
 * Returns the terms that can be paid. If a listing's terms have changed, returns why it is refused, together
 * with the live terms if they can be paid.
 */
export function choosePayable(
  { caller, listing, target, deps: { networks } }: Job,
  offer: Offer,
): { choice: Payable; refusal?: TargetRefusal } | { choice?: undefined; refusal: TargetRefusal } {
  const options = {
    networks,
    wallet: caller.walletAddress,
    preferredNetwork: caller.network,
  };
  // In our own words, unlike the other reasons.
  const breaches: string[] = [];
  const breach = (chosen: ChosenTerms): string | undefined => {
    const verdict = listing && compareTerms(listing, termsOf(target.url, chosen));
    if (verdict?.kept !== false) return undefined;
    breaches.push(verdict.reason);
    return verdict.reason;
  };
  const choice = chooseTerms(offer, { ...options, refuse: breach });
  if (choice.ok) return { choice };
  if (!listing)
    throw new ApiError("unsupported_payment_requirements", {
      detail:
        "This wallet cannot pay any offer of the target (see `offers` and `thirdParty.reasons`). Nothing was paid.",
      extra: {
        offers: offersForAnswer(choice.offers, networks),
        thirdParty: { untrusted: true, reasons: quotedReasons(choice.offers) },
      },
    });
  const detail = `The current terms differ from the listing. ${breaches[0] ?? ""}`.trim();
  const refusal: TargetRefusal = { code: "listing_mismatch", detail };
  const live = chooseTerms(offer, options);
  if (!live.ok) return { refusal };
  const [first] = live.ranked;
  // Each offer with what differs from the listing, except the one to be checked instead.
  const offers = choice.offers.map((one) => (one.place === first.place ? first : one));
  return { choice: { ...live, offers, ranked: [first] }, refusal };
}

/** More payable offers than any honest seller has: each check costs a round trip. */
const MAX_CHECKED = 16;
const TOO_MANY = `Purser checks only the ${MAX_CHECKED} best-ranked offers.`;

export interface CheckedOffers {
  /** The first that passed, otherwise the one whose denial is returned. */
  chosen: Candidate;
  /** The result of its check, if it was checked. */
  verdict?: Verdict;
  /** Adds the results of the other offers to a refusal of the chosen one. */
  withOffers(error: ApiError): ApiError;
}

/**
 * Finds the first offer in rank that policy and balance allow now. A single offer is left to the guardrails,
 * which saves a round trip.
 * If none passes, the denial of the cheapest is returned, or of the cheapest that an approval can lift if the
 * caller requests approval. Each other offer gets the reason of its refusal.
 */
export async function checkOffers(
  { input, caller, deps }: Job,
  { ranked, offers }: Payable,
  requestFor: (chosen: ChosenTerms) => PayRequest,
): Promise<CheckedOffers> {
  const explains = input.dryRun === true;
  const { agentReserve, networks } = deps;
  const balances = new Map<number, Promise<WalletBalance>>();
  const balanceOn = (chainId: number): Promise<WalletBalance> => {
    const balance = balances.get(chainId) ?? agentReserve.readBalance(chainId, caller);
    balances.set(chainId, balance);
    return balance;
  };
  // Checked once for all offers of a network: an outage that ends between two checks must not make a
  // lower-ranked offer win.
  const available = new Map<number, Promise<void>>();
  const availableOn = (chainId: number): Promise<void> => {
    const answer = available.get(chainId) ?? agentReserve.assertAvailable(chainId);
    available.set(chainId, answer);
    return answer;
  };
  const verdictOn = async ({ payable }: Candidate): Promise<Verdict> => {
    const request = requestFor(payable);
    if (!explains) await availableOn(request.chainId);
    const balance = request.balance ?? balanceOn(request.chainId);
    return agentReserve.evaluate({ ...request, balance });
  };
  const found =
    ranked.length > 1
      ? await checkInOrder(ranked, { verdictOn, explains })
      : new Map<Candidate, Verdict>();
  const passed = ranked.find((candidate) => found.get(candidate)?.allowed);
  const requestsApproval = input.requestApproval === true;
  const liftable = requestsApproval ? ranked.find(({ refused }) => refused?.approvable) : undefined;
  const chosen = passed ?? liftable ?? ranked[0];
  const verdict = found.get(chosen);
  return {
    chosen,
    ...(verdict && { verdict }),
    withOffers(error) {
      if (offers.length < 2) return error;
      chosen.refused = refusalOf(error);
      const { code, message: detail, headers, extra } = error;
      const details = { ...extra, offers: offersForAnswer(offers, networks, chosen.payable) };
      return new ApiError(code, { detail, headers, cause: error, extra: details });
    },
  };
}

/** A payment needs only the first offer that passes; a dry run checks all. */
async function checkInOrder(
  ranked: Payable["ranked"],
  {
    verdictOn,
    explains,
  }: { verdictOn: (candidate: Candidate) => Promise<Verdict>; explains: boolean },
): Promise<Map<Candidate, Verdict>> {
  const found = new Map<Candidate, Verdict>();
  for (const [index, candidate] of ranked.entries()) {
    if (index >= MAX_CHECKED) {
      candidate.refused = { code: "not_looked_at", detail: TOO_MANY };
      continue;
    }
    const verdict = await verdictOn(candidate).catch((error: unknown) => {
      // A chain that is unavailable excludes only its own offers.
      if (!(error instanceof ApiError) || error.status < 500) throw error;
      candidate.refused = refusalOf(error);
    });
    if (!verdict) continue;
    found.set(candidate, verdict);
    if (verdict.error) candidate.refused = refusalOf(verdict.error);
    if (verdict.allowed && !explains) break;
  }
  return found;
}

export const refusalOf = ({ code, message, extra }: ApiError): OfferRefusal => ({
  code,
  detail: message,
  ...(extra["approvable"] === true && { approvable: true }),
});

/** The offers as returned to the caller: only values that were read and checked, null for the rest. */
export function offersForAnswer(
  offers: readonly ReadOffer[],
  networks: readonly NetworkFacts[],
  chosen?: ChosenTerms,
) {
  return offers.map(({ place, terms, payable, refused }) => {
    const scheme = findScheme(terms.scheme, terms.extra, terms.protocol);
    const network = findNetwork(terms.network, networks);
    const payTo = parseAddress(terms.payTo);
    const isUsdc = network?.usdc.address.toLowerCase() === terms.asset.toLowerCase();
    const amountAtomic = isUsdc ? parseAtomic(terms.amount) : undefined;
    return {
      offer: place,
      protocol: terms.protocol,
      scheme: scheme?.name ?? null,
      network: network?.id ?? null,
      payTo: payTo.ok ? getAddress(payTo.address) : null,
      amount: amountAtomic === undefined ? null : formatAtomic(amountAtomic),
      ...(scheme?.isMetered && { maximum: true as const }),
      ...(payable && payable === chosen && { chosen: true as const }),
      ...(refused && { refused }),
    };
  });
}

/** Explains the choice in sentences: what was refused, and which alternatives there were. */
export function explained(offers: readonly ReadOffer[], chosen: ChosenTerms): string[] {
  return offers.map(({ place, payable, refused }) => {
    const most = payable?.isMaximum ? ` ${payable.scheme.name} maximum` : "";
    if (refused) return `Offer ${place} refused (${refused.code}):${most} ${refused.detail}`;
    return payable === chosen
      ? `Offer ${place} chosen: the cheapest that rules and balance allow.`
      : `Offer ${place} is possible but ranks lower by price, network, cancellability or order.`;
  });
}

/** The reasons that quote the seller: third-party text, kept apart from our own. */
export const quotedReasons = (offers: readonly ReadOffer[]): string[] =>
  offers.flatMap(({ place, quoting }) =>
    quoting === undefined ? [] : offers.length > 1 ? `Offer ${place}: ${quoting}` : quoting,
  );
