/**
 * Of several offers that could be paid, which one policy and balance allow: looked at one by one in rank, read-only. The one
 * that is chosen is reserved afterwards, where the guardrails decide again; the results of the others are returned.
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
 * The terms that are ours to pay; for a listing that is not kept, why it is refused, beside the live terms where there are
 * any that could be paid.
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
  // Our own text, unlike the other reasons.
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
  // Each with what keeps it from the listing; the one that is judged instead as it is.
  const offers = choice.offers.map((one) => (one.place === first.place ? first : one));
  return { choice: { ...live, offers, ranked: [first] }, refusal };
}

/** More than any honest seller has of what we could pay: each costs a round trip. */
const MAX_WEIGHED = 16;
const TOO_MANY = `Purser checks only the ${MAX_WEIGHED} best-ranked offers.`;

export interface Weighed {
  /** The first that passed; else the one whose denial is returned. */
  chosen: Candidate;
  /** The result of its check, where it was checked. */
  verdict?: Verdict;
  /** A refusal of the chosen one, beside what became of the others. */
  withOffers(error: ApiError): ApiError;
}

/**
 * The first in rank that policy and balance allow, now. A single one is left to the guardrails alone: that costs no round
 * trip. Where none passes, the denial of the cheapest is returned; or of the cheapest that an approval can lift, where the
 * owner would be asked. Each other offer gets the reason of its refusal.
 */
export async function weigh(
  { input, caller, deps }: Job,
  { ranked, offers }: Payable,
  requestFor: (chosen: ChosenTerms) => PayRequest,
): Promise<Weighed> {
  const explains = input.dryRun === true;
  const { agentReserve, networks } = deps;
  const balances = new Map<number, Promise<WalletBalance>>();
  const balanceOn = (chainId: number): Promise<WalletBalance> => {
    const balance = balances.get(chainId) ?? agentReserve.readBalance(chainId, caller);
    balances.set(chainId, balance);
    return balance;
  };
  // Asked once for all offers of a network: one that answers in between must not make the second the better one.
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
      ? await lookAt(ranked, { verdictOn, explains })
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
      const told = { ...extra, offers: offersForAnswer(offers, networks, chosen.payable) };
      return new ApiError(code, { detail, headers, cause: error, extra: told });
    },
  };
}

/** A payment needs only the first that passes; an explanation needs all. */
async function lookAt(
  ranked: Payable["ranked"],
  {
    verdictOn,
    explains,
  }: { verdictOn: (candidate: Candidate) => Promise<Verdict>; explains: boolean },
): Promise<Map<Candidate, Verdict>> {
  const found = new Map<Candidate, Verdict>();
  for (const [index, candidate] of ranked.entries()) {
    if (index >= MAX_WEIGHED) {
      candidate.refused = { code: "not_looked_at", detail: TOO_MANY };
      continue;
    }
    const verdict = await verdictOn(candidate).catch((error: unknown) => {
      // A chain that does not answer now costs its own offers only.
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

/** The offers as they are returned: only what was read and checked, null for the rest. */
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

/** Why this one, in sentences: what was refused before it, and what else there was. */
export function explained(offers: readonly ReadOffer[], chosen: ChosenTerms): string[] {
  return offers.map(({ place, payable, refused }) => {
    const most = payable?.isMaximum ? ` ${payable.scheme.name} maximum` : "";
    if (refused) return `Offer ${place} refused (${refused.code}):${most} ${refused.detail}`;
    return payable === chosen
      ? `Offer ${place} chosen: the cheapest that rules and balance allow.`
      : `Offer ${place} is possible but ranks lower by price, network, cancellability or order.`;
  });
}

/** The reasons that quote the seller: third-party text, kept apart from ours. */
export const quotedReasons = (offers: readonly ReadOffer[]): string[] =>
  offers.flatMap(({ place, quoting }) =>
    quoting === undefined ? [] : offers.length > 1 ? `Offer ${place}: ${quoting}` : quoting,
  );
