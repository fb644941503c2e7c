/**
 * Chooses what to pay. First a pure ranking of what the seller accepts: schemes that we support, in USDC on a
 * configured network, to a valid payee, cheapest first. Then, if several can be paid, policy and balance of each
 * are checked in that order, without writing. The chosen one is reserved, where the guardrails decide again.
 */
import { getAddress, type Address } from "viem";
import { parseAddress, quoted } from "../../core/foreign-text.ts";
import { formatAtomic, parseAtomic } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import { siteOf } from "../../core/site.ts";
import { ApiError } from "../../errors.ts";
import {
  channelScheme,
  readOffer,
  type PayableChannel,
} from "../../schemes/batch-settlement/paying.ts";
import { findScheme } from "../../schemes/index.ts";
import type { Scheme } from "../../schemes/scheme.ts";
import type { ChannelWanted, TargetRefusal, Verdict } from "../guardrails/types.ts";
import { compareTerms } from "../listings/index.ts";
import type { Terms } from "../listings/store.ts";
import { approvalRequestOf, type PayRequest, type WalletBalance } from "../payments/reserve.ts";
import { MAX_VALID_SECONDS } from "../payments/steps.ts";
import type { Job, PaymentTerms } from "./job.ts";
import { busySecondsOf, readableTarget } from "./request.ts";
import { CHALLENGE_FAULTS, type Offer, type OfferedTerms } from "./terms.ts";

export type ChosenTerms = CommonTerms &
  (
    | { scheme: Scheme; channel?: undefined }
    | { scheme: typeof channelScheme; channel: PayableChannel }
  );

interface CommonTerms {
  network: NetworkFacts;
  /** Lower case, as in all our tables. */
  asset: Address;
  payTo: Address;
  amountAtomic: bigint;
  /** The amount is the most that may be charged (metered schemes); the actual charge depends on use. */
  isMaximum?: true;
  /** How long the authorization is valid: never longer than the seller requests or we allow. */
  validForSeconds: number;
  terms: OfferedTerms;
}

/** Why an offer is not paid, in our own words. */
interface OfferRefusal {
  code: string;
  detail: string;
  /** The owner may approve this one payment. */
  approvable?: true;
}

/** A parsed entry: what would be paid for it, or why it cannot be paid. */
export interface ReadOffer {
  /** Its number in the seller's order, from 1. */
  place: number;
  terms: OfferedTerms;
  payable?: ChosenTerms;
  refused?: OfferRefusal;
  /** The same refusal, quoting the seller's text. */
  quoting?: string;
}

export type Candidate = ReadOffer & { payable: ChosenTerms };

export type Choice = { offers: ReadOffer[] } & (
  | { ok: true; chosen: ChosenTerms; ranked: readonly [Candidate, ...Candidate[]] }
  | { ok: false; reasons: string[] }
);

export interface ChooseOptions {
  networks: readonly NetworkFacts[];
  /** The agent's own wallet: an agent must not pay itself. */
  wallet: Address | undefined;
  /** Among equal prices, the agent's own network is preferred. */
  preferredNetwork: string | undefined;
  /** The agent's owner allows payment channels. */
  usesChannels?: boolean;
  /** Signs vouchers of new channels. Undefined: this service has no channels. */
  channelSigner?: Address | undefined;
  /**
   * Further conditions, for example the pinned terms of a listing: returns, in our own words, why an entry is
   * not acceptable.
   */
  refuse?: (chosen: ChosenTerms) => string | undefined;
}

/** Chooses the cheapest terms that can be paid; the guardrails have not decided yet. */
export function chooseTerms(offer: Offer, options: ChooseOptions): Choice {
  const offers = offer.accepts.map((terms, index): ReadOffer => {
    const read = readEntry(terms, offer.x402Version, options);
    const entry = { place: index + 1, terms };
    if ("code" in read) {
      const [detail, quoting] = [UNPAYABLE[read.code], read.quoting ?? UNPAYABLE[read.code]];
      return { ...entry, refused: { code: read.code, detail }, quoting };
    }
    const breach = options.refuse?.(read);
    if (breach === undefined) return { ...entry, payable: read };
    return { ...entry, refused: { code: "listing_mismatch", detail: breach }, quoting: breach };
  });
  if (!options.usesChannels) leaveOutChannels(offers);
  const [first, ...others] = rank(offers.filter(isCandidate), options.preferredNetwork);
  return first
    ? { ok: true, offers, chosen: first.payable, ranked: [first, ...others] }
    : { ok: false, offers, reasons: offers.flatMap(({ quoting }) => quoting ?? []) };
}

/** Only where there is another way to pay: a refusal by the guardrails is recorded, and says what to ask the owner for. */
function leaveOutChannels(offers: ReadOffer[]): void {
  if (!offers.some(({ payable }) => payable && !payable.channel)) return;
  for (const offer of offers) {
    if (!offer.payable?.channel) continue;
    delete offer.payable;
    offer.refused = {
      code: "channel_not_allowed",
      detail: "The agent's owner allows no payment channels.",
    };
  }
}

const isCandidate = (offer: ReadOffer): offer is Candidate => offer.payable !== undefined;

/**
 * By price (a maximum counts in full), then the agent's own network, then channels, then payments that can be canceled,
 * then the seller's order.
 */
export const rank = (
  candidates: readonly Candidate[],
  preferredNetwork: string | undefined,
): Candidate[] => {
  const badness = ({ network, scheme, channel }: ChosenTerms): number =>
    (network.id === preferredNetwork ? 0 : 3) + (channel ? 0 : "cancelDigest" in scheme ? 1 : 2);
  return [...candidates].sort(({ payable: left, place }, { payable: right, place: after }) => {
    if (left.amountAtomic !== right.amountAtomic)
      return left.amountAtomic < right.amountAtomic ? -1 : 1;
    return badness(left) - badness(right) || place - after;
  });
};

/** Reasons of the protocol for which an entry cannot be paid. */
const UNPAYABLE = {
  gateway_wallet_batched:
    "It is for Circle's Gateway (GatewayWalletBatched), which spends a deposit in Circle's contract. This wallet has no such deposit.",
  auth_capture:
    "Its scheme holds money in an escrow contract (auth-capture), and this wallet could not take back what the seller leaves there.",
  unsupported_scheme: "This wallet does not support its scheme.",
  unsupported_network: "This service does not support its network.",
  unsupported_asset: "Its asset is not the USDC of its network.",
  unsupported_terms: "Its `extra` describes something that this wallet does not sign.",
  amount_invalid: "Its amount is not a positive number of atomic units.",
  payee_invalid: "Its payTo is not an address that can receive payments.",
  time_invalid: "Its maxTimeoutSeconds leaves no time to pay.",
  ...CHALLENGE_FAULTS,
} as const;

interface Unpayable {
  code: keyof typeof UNPAYABLE;
  quoting?: string;
}

/** The EIP-712 name in Circle's Gateway terms, which use Circle's contract instead of the token. */
const GATEWAY = "GatewayWalletBatched";

/** `auth-capture`, and the names that its drafts had (docs/decisions/0046-auth-capture.md). */
const ESCROW_SCHEMES: ReadonlySet<unknown> = new Set([
  "auth-capture",
  "authCapture",
  "commerce",
  "commerce-payments",
  "escrow",
]);

/** Whether an offer pays into the escrow contract of `auth-capture`. */
export const isEscrowScheme = (scheme: unknown): boolean => ESCROW_SCHEMES.has(scheme);

/** Returns the parsed entry, or why it cannot be paid. */
function readEntry(
  terms: OfferedTerms,
  x402Version: Offer["x402Version"],
  options: ChooseOptions,
): ChosenTerms | Unpayable {
  const no = (code: Unpayable["code"], quoting?: string): Unpayable => ({
    code,
    ...(quoting !== undefined && { quoting }),
  });
  if (terms.refused) return terms.refused;
  if (terms.extra["name"] === GATEWAY) return no("gateway_wallet_batched");
  if (isEscrowScheme(terms.scheme)) return no("auth_capture");
  const isChannel =
    terms.scheme === channelScheme.name && terms.protocol === "x402" && x402Version === 2;
  const scheme = isChannel ? channelScheme : findScheme(terms.scheme, terms.extra, terms.protocol);
  if (!scheme) return no("unsupported_scheme", `scheme ${quoted(terms.scheme)} is not supported`);
  const network = findNetwork(terms.network, options.networks);
  if (!network)
    return no("unsupported_network", `network ${quoted(terms.network)} is not configured here`);
  const usdc = network.usdc.address.toLowerCase() as Address;
  if (terms.asset.toLowerCase() !== usdc)
    return no("unsupported_asset", `asset ${quoted(terms.asset)} is not its USDC`);
  const how = readHow(scheme, terms.extra, { network, signer: options.channelSigner });
  if (typeof how === "string") return no("unsupported_terms", how);
  const amountAtomic = parseAtomic(terms.amount);
  if (amountAtomic === undefined || amountAtomic === 0n)
    return no(
      "amount_invalid",
      `amount ${quoted(terms.amount)} is not a positive number of atomic units`,
    );
  const payTo = parseAddress(terms.payTo);
  if (!payTo.ok) return no("payee_invalid", `payTo ${quoted(terms.payTo)} ${payTo.reason}`);
  if (payTo.address === usdc) return no("payee_invalid", "payTo is the token itself");
  if (payTo.address === options.wallet?.toLowerCase())
    return no("payee_invalid", "payTo is the paying wallet itself");
  const validForSeconds = Math.floor(Math.min(terms.maxTimeoutSeconds, MAX_VALID_SECONDS));
  if (!(validForSeconds >= 1))
    return no("time_invalid", `maxTimeoutSeconds ${terms.maxTimeoutSeconds} leaves no time to pay`);
  return {
    ...how,
    network,
    asset: usdc,
    payTo: payTo.address,
    amountAtomic,
    ...(scheme.isMetered && { isMaximum: true }),
    validForSeconds,
    terms,
  };
}

const knownScheme = ({ scheme, extra, protocol }: OfferedTerms) =>
  protocol === "x402" && scheme === channelScheme.name
    ? channelScheme
    : findScheme(scheme, extra, protocol);

/** Whether wallets know a scheme of this name. */
export const isKnownScheme = (name: string, extra: OfferedTerms["extra"]): boolean =>
  name === channelScheme.name || findScheme(name, extra) !== undefined;

/** How the terms are paid, or why this wallet does not sign them. */
function readHow(
  scheme: Scheme | typeof channelScheme,
  extra: OfferedTerms["extra"],
  { network, signer }: { network: NetworkFacts; signer: Address | undefined },
) {
  if ("whyNotPayable" in scheme) return scheme.whyNotPayable(extra, network) ?? { scheme };
  if (!signer) return "this service has no key for payment channels (CHANNEL_KEYS)";
  const channel = readOffer(extra, network);
  return typeof channel === "string" ? channel : { scheme, channel: { ...channel, signer } };
}

/** The fields of the chosen terms that a listing pins. */
export const termsOf = (url: URL, chosen: ChosenTerms): Terms => ({
  host: url.host,
  payTo: chosen.payTo,
  asset: chosen.asset,
  network: chosen.network.id,
  priceAtomic: chosen.amountAtomic,
});

type Payable = Extract<Choice, { ok: true }>;

/**
 * Returns the terms that can be paid. If a listing's terms have changed, returns why it is refused, together
 * with the live terms if they can be paid.
 */
export function choosePayable(
  { caller, listing, target, deps: { networks } }: Job,
  offer: Offer,
  channelSigner: Address | undefined,
): { choice: Payable; refusal?: TargetRefusal } | { choice?: undefined; refusal: TargetRefusal } {
  const options = {
    networks,
    wallet: caller.walletAddress,
    preferredNetwork: caller.network,
    usesChannels: caller.usesChannels,
    channelSigner,
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
      detail: `This wallet cannot pay any offer of the target (see \`offers\` and \`thirdParty.reasons\`). ${commonReason(choice.offers)}Nothing was paid.`,
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
  offers: readonly ReadOffer[];
}

/** The balance of the agent's own network, read while the target responds. */
export interface EarlyBalance {
  networkId: string;
  startedMs: number;
  balance: Promise<WalletBalance | undefined>;
}

/** What is the same in the payment requests for all offers of one 402. */
interface OfferContext {
  offer: Offer;
  /** Why it is refused although it could be paid: the listing promised other terms. */
  refusal?: TargetRefusal;
  early?: EarlyBalance;
}

const FRESH_MS = 2_000;

/**
 * Finds the first offer in rank that policy and balance allow now. A single offer is left to the guardrails,
 * which saves a round trip.
 * If none passes, the denial of the cheapest is returned, or of the cheapest that an approval can lift if the
 * caller requests approval. Each other offer gets the reason of its refusal.
 */
export async function checkOffers(
  job: Job,
  context: OfferContext,
  { ranked, offers }: Payable,
): Promise<CheckedOffers> {
  const { input } = job;
  const found =
    ranked.length > 1 ? await checkInOrder(job, context, ranked) : new Map<Candidate, Verdict>();
  const passed = ranked.find((candidate) => found.get(candidate)?.allowed);
  const requestsApproval = input.requestApproval === true;
  const liftable = requestsApproval ? ranked.find(({ refused }) => refused?.approvable) : undefined;
  const chosen = passed ?? liftable ?? ranked[0];
  const verdict = found.get(chosen);
  return { chosen, offers, ...(verdict && { verdict }) };
}

/** Adds the results of the other offers to a refusal of the chosen one. */
export function withOffers(
  { chosen, offers }: CheckedOffers,
  networks: readonly NetworkFacts[],
  error: ApiError,
): ApiError {
  if (offers.length < 2) return error;
  chosen.refused = refusalOf(error);
  const { code, message: detail, headers, extra } = error;
  const details = { ...extra, offers: offersForAnswer(offers, networks, chosen.payable) };
  return new ApiError(code, { detail, headers, cause: error, extra: details });
}

/** A payment needs only the first offer that passes; a dry run checks all. */
async function checkInOrder(
  job: Job,
  context: OfferContext,
  ranked: Payable["ranked"],
): Promise<Map<Candidate, Verdict>> {
  const { caller, input } = job;
  const { agentReserve } = job.deps;
  const explains = input.dryRun === true;
  // Read once for all offers of a network: an outage that ends between two checks must not make a lower-ranked
  // offer win.
  const balances = new Map<number, Promise<WalletBalance>>();
  const available = new Map<number, Promise<void>>();
  const verdictOn = async ({ payable }: Candidate): Promise<Verdict> => {
    const request = payRequest(job, context, payable);
    const { chainId } = request;
    if (!explains) await once(available, chainId, () => agentReserve.assertAvailable(chainId));
    const balance =
      request.balance ?? once(balances, chainId, () => agentReserve.readBalance(chainId, caller));
    return agentReserve.evaluate({ ...request, balance });
  };
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

function once<T>(known: Map<number, Promise<T>>, chainId: number, read: () => Promise<T>) {
  const answer = known.get(chainId) ?? read();
  known.set(chainId, answer);
  return answer;
}

/** The payment for these terms, as the guardrails decide on it. `offered`: the seller's signed offer for them. */
export function payRequest(
  job: Job,
  { offer, refusal, early }: OfferContext,
  chosen: ChosenTerms,
  offered?: unknown,
): PayRequest {
  const { caller, input, target, listing, maxAmountAtomic } = job;
  const terms: PaymentTerms = {
    x402Version: offer.x402Version,
    ...(chosen.terms.protocol === "mpp" && { protocol: "mpp" }),
    accepted: chosen.terms.raw,
    ...(offer.resource ? { resource: offer.resource } : {}),
    ...(chosen.terms.binding && { binding: chosen.terms.binding }),
    ...(offered !== undefined && { offered }),
  };
  const isEarly =
    early?.networkId === chosen.network.id && performance.now() - early.startedMs < FRESH_MS;
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
    ...(chosen.channel
      ? { channel: channelWanted(job, chosen, chosen.channel) }
      : { scheme: chosen.scheme, extra: chosen.terms.extra }),
    validForSeconds: chosen.validForSeconds,
    ...(chosen.terms.nonce !== undefined && { nonce: chosen.terms.nonce }),
    ...(chosen.terms.binding && { boundNonce: chosen.terms.binding.nonce }),
    ...approvalRequestOf(input),
    requestId: caller.requestId,
    url: readableTarget(target.url, target.mcp),
    listingId: listing?.id,
    task: input.task,
    requirement: terms,
    idempotency: caller.idempotency,
    ...(refusal && { refusal }),
    ...(isEarly && { balance: early.balance }),
  };
}

const channelWanted = (
  { caller, input, deps }: Job,
  { network: { chainId }, payTo: receiver, asset: token }: ChosenTerms,
  offer: PayableChannel,
): ChannelWanted =>
  deps.channels.wanted(
    caller.walletAddress,
    { chainId, receiver, token, offer },
    busySecondsOf(input, deps.settleWaitMs),
  );

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
    const scheme = payable?.scheme ?? knownScheme(terms);
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

/** Why, in our own words, if every offer is refused for the same reason of the protocol. Ends with a space. */
export function commonReason(offers: readonly ReadOffer[]): string {
  const codes = new Set(offers.map(({ refused }) => refused?.code));
  const [code] = codes;
  return codes.size === 1 && isUnpayable(code) ? `${UNPAYABLE[code]} ` : "";
}

const isUnpayable = (code: string | undefined): code is keyof typeof UNPAYABLE =>
  code !== undefined && Object.hasOwn(UNPAYABLE, code);

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
