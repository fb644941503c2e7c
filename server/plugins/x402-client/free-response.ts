/**
 * Responses without a new payment: free content, cached content that was paid for before, and sign-in with the
 * wallet's signature.
 */
import { createHash } from "node:crypto";
import { encodeSIWxHeader, SIGN_IN_WITH_X } from "@x402/extensions/sign-in-with-x";
import { siteOf } from "../../core/site.ts";
import { ApiError } from "../../errors.ts";
import type { ListingPins } from "../listings/index.ts";
import type { FreeResponse } from "../payments/idempotency.ts";
import type { Reservation } from "../payments/payment-plan.ts";
import { freeBody, freeQuoteBody } from "./answers.ts";
import type { CacheLookup } from "./cache.ts";
import type { UpstreamContent } from "./content.ts";
import type { LedgerEntry } from "./ledger.ts";
import type { ChosenTerms } from "./offer-rank.ts";
import type { SignedJob } from "./deliver.ts";
import { requestTarget, type Offer } from "./offer.ts";
import {
  isSafe,
  type ClientDeps,
  type FetchCaller,
  type FetchInput,
  type Prepared,
} from "./request.ts";

export type Job = Prepared & {
  input: FetchInput;
  caller: FetchCaller;
  listing: ListingPins | undefined;
  entry: LedgerEntry;
  /** Set when a cached response may be returned, or this one may be cached. */
  cacheLookup: CacheLookup | undefined;
  /** The dependencies of this job; its requests are counted, and limited to the agent's share of memory. */
  deps: ClientDeps;
};

/**
 * Time for everything besides the target's responses and the chain: a second attempt, waiting for memory, the
 * database.
 */
const CLAIM_SPARE_MS = 30_000;

/**
 * Returns content that was paid for before, without a request. While another call of this agent pays for the
 * same content, waits for that call.
 */
export async function cachedResponse({
  cacheLookup,
  input,
  target,
  caller,
  entry,
  deps,
}: Job): Promise<Reservation | undefined> {
  if (!cacheLookup || input.maxAge === undefined) return undefined;
  // Three requests: for the price, the sign-in and the proof.
  const claimMs = 3 * target.timeoutMs + deps.settleWaitMs + CLAIM_SPARE_MS;
  const fresh = await cacheLookup.look(
    { maxAgeSeconds: input.maxAge, claimSeconds: Math.ceil(claimMs / 1_000) },
    () => caller.lease.reserve(),
  );
  if (!fresh) return undefined;
  await entry.begun();
  return {
    kind: "free_not_stored",
    body: cacheLookup.bodyOf(fresh, await deps.remainingOf(caller.id)),
  };
}

/**
 * A site may grant access by the wallet's signature for an earlier payment. It is tried first; if the site
 * refuses it, the content is paid for.
 * With a safe method every failure leads to payment, so that a broken sign-in does not prevent it. Any other
 * response is the result.
 */
export async function signIn(
  { caller, target, deps }: Job,
  offer: Offer,
  { payTo: payee }: ChosenTerms,
): Promise<Reservation | undefined> {
  // A tool call has no field for such a signature.
  if (!offersSignIn(offer) || target.mcp) return undefined;
  const challenge = offer.extensions?.[SIGN_IN_WITH_X];
  const signInRequest = { agentId: caller.id, url: target.url, payee, challenge };
  const payload = await deps.signIn(signInRequest).catch((err: unknown) => {
    // Whether it may be paid instead is decided by the payment itself.
    deps.log.warn({ err, agentId: caller.id }, "not signed in");
  });
  if (!payload) return undefined;
  const headers = { ...target.headers, [SIGN_IN_WITH_X]: encodeSIWxHeader(payload) };
  const answered = await requestTarget((request) => deps.send(request), {
    ...target,
    headers,
  }).catch((error: unknown) => {
    if (!isSafe(target) || !isUpstream(error)) throw error;
  });
  if (answered?.kind !== "free" || isRefused(answered.seen, target)) return undefined;
  const { seen } = answered;
  const remaining = await deps.remainingOf(caller.id);
  const free = freeBody(target, seen, remaining);
  const body = {
    note: "Fetched again with the wallet's signature. Nothing was paid.",
    ...free,
    signedIn: true,
  };
  // A request that had an effect is not repeated with the same key.
  return isSafe(target)
    ? { kind: "free_not_stored", body }
    : { kind: "free", body, freeAnswer: digestOf(seen) };
}

const isRefused = ({ status }: UpstreamContent, target: Prepared["target"]): boolean =>
  isSafe(target) ? status >= 400 : status === 401 || status === 403;

/** No response, or an unusable one. */
const isUpstream = (error: unknown): boolean =>
  error instanceof ApiError && error.code.startsWith("upstream_");

export async function freeResponse(
  { caller, target, input, deps }: Job,
  seen: UpstreamContent,
): Promise<Reservation> {
  const remaining = await deps.remainingOf(caller.id);
  const { maxBytes } = deps;
  if (input.dryRun === true)
    return { kind: "free", body: freeQuoteBody(target, seen, { remaining, maxBytes }) };
  const body = freeBody(target, seen, remaining);
  return { kind: "free", body, freeAnswer: digestOf(seen) };
}

const offersSignIn = ({ extensions }: Offer): boolean => extensions?.[SIGN_IN_WITH_X] !== undefined;

/** The stored digest of a free response. */
const digestOf = ({ status, bytes, text, dataBase64 }: UpstreamContent): FreeResponse => ({
  status,
  bytes,
  sha256: createHash("sha256")
    .update(text ?? Buffer.from(dataBase64 ?? "", "base64"))
    .digest("hex"),
});

/** What a payment allows afterwards: a cached response, a usage count, a sign-in. */
export const afterPayment = (
  { target, listing, cacheLookup, deps }: Job,
  { paymentId, offer }: { paymentId: string; offer: Offer },
): Pick<SignedJob, "signsIn" | "paid"> => ({
  signsIn: offersSignIn(offer) && !target.mcp,
  paid: async (seen) => {
    // Not awaited: the response must not wait for a counter or fail with it.
    if (listing)
      deps.listings
        .countUse(listing.id)
        .catch((err: unknown) =>
          deps.log.warn({ err, listingId: listing.id }, "use of a listing not counted"),
        );
    await cacheLookup?.keep(seen, paymentId);
  },
});

/**
 * Records sites where this wallet has paid, also with payments that are not settled yet: a sign-in checks the
 * ledger.
 */
export async function notePaid(
  deps: ClientDeps,
  { key, target, facts, signsIn }: SignedJob,
  how: { isSettled: boolean },
): Promise<void> {
  if (!signsIn) return;
  const paidAt = { agentId: key.agentId, payee: facts.payTo, site: siteOf(target.url) };
  await deps
    .notePaidSite(paidAt, key.paymentId, how)
    .catch((err: unknown) =>
      deps.log.warn({ err, ...key }, "a site that this wallet paid was not recorded"),
    );
}
