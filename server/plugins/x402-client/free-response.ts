/** Free responses: free content, content that was paid for before, and content for which the wallet's signature is enough. */
import { createHash } from "node:crypto";
import { encodeSIWxHeader, SIGN_IN_WITH_X } from "@x402/extensions/sign-in-with-x";
import { siteOf } from "../../core/site.ts";
import { ApiError } from "../../errors.ts";
import type { ListingPins } from "../listings/index.ts";
import type { FreeResponse } from "../payments/idempotency.ts";
import type { Reservation } from "../payments/payment-plan.ts";
import { freeBody, freeQuoteBody } from "./answers.ts";
import type { CacheTurn } from "./cache.ts";
import type { Seen } from "./content.ts";
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
  /** Where it may be returned again, or is kept. */
  turn: CacheTurn | undefined;
  /** This job's way to the target: counted, and within the agent's share of memory. */
  deps: ClientDeps;
};

/** What a fetch may take beside its target's answers and the chain: a second showing, room in memory, the database. */
const CLAIM_SPARE_MS = 30_000;

/** Paid for already: free, and no request is sent. While another call of this agent pays for the same, it waits for that one. */
export async function cachedResponse({
  turn,
  input,
  target,
  caller,
  entry,
  deps,
}: Job): Promise<Reservation | undefined> {
  if (!turn || input.maxAge === undefined) return undefined;
  // Its price, a sign-in, the proof.
  const claimMs = 3 * target.timeoutMs + deps.settleWaitMs + CLAIM_SPARE_MS;
  const fresh = await turn.look(
    { maxAgeSeconds: input.maxAge, claimSeconds: Math.ceil(claimMs / 1_000) },
    () => caller.lease.reserve(),
  );
  if (!fresh) return undefined;
  await entry.begun();
  return { kind: "told", body: turn.bodyOf(fresh, await deps.remainingOf(caller.id)) };
}

/**
 * A site may take the wallet's signature for what was paid there before. It is tried first, and paid if it is refused. Where
 * asking again does nothing over there, whatever fails is paid as well: a broken sign-in must not keep a site from being
 * paid. Any other answer is the answer.
 */
export async function signIn(
  { caller, target, deps }: Job,
  offer: Offer,
  { payTo: payee }: ChosenTerms,
): Promise<Reservation | undefined> {
  // A tool has no field for such a signature.
  if (!offersSignIn(offer) || target.mcp) return undefined;
  const challenge = offer.extensions?.[SIGN_IN_WITH_X];
  const asked = { agentId: caller.id, url: target.url, payee, challenge };
  const payload = await deps.signIn(asked).catch((err: unknown) => {
    // Whether it may be paid instead is decided where it is paid.
    deps.log.warn({ err, agentId: caller.id }, "not signed in");
  });
  if (!payload) return undefined;
  const headers = { ...target.headers, [SIGN_IN_WITH_X]: encodeSIWxHeader(payload) };
  const answered = await requestTarget((request) => deps.ask(request), {
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
  // What acted over there is not done again by the same key.
  return isSafe(target)
    ? { kind: "told", body }
    : { kind: "unpaid", body, freeAnswer: digestOf(seen) };
}

const isRefused = ({ status }: Seen, target: Prepared["target"]): boolean =>
  isSafe(target) ? status >= 400 : status === 401 || status === 403;

/** No answer, or none that is of use. */
const isUpstream = (error: unknown): boolean =>
  error instanceof ApiError && error.code.startsWith("upstream_");

export async function freeResponse(
  { caller, target, input, deps }: Job,
  seen: Seen,
): Promise<Reservation> {
  const remaining = await deps.remainingOf(caller.id);
  const { maxBytes } = deps;
  if (input.dryRun === true)
    return { kind: "unpaid", body: freeQuoteBody(target, seen, { remaining, maxBytes }) };
  const body = freeBody(target, seen, remaining);
  return { kind: "unpaid", body, freeAnswer: digestOf(seen) };
}

const offersSignIn = ({ extensions }: Offer): boolean => extensions?.[SIGN_IN_WITH_X] !== undefined;

/** What is kept of an answer that cost nothing. */
const digestOf = ({ status, bytes, text, dataBase64 }: Seen): FreeResponse => ({
  status,
  bytes,
  sha256: createHash("sha256")
    .update(text ?? Buffer.from(dataBase64 ?? "", "base64"))
    .digest("hex"),
});

/** What a payment allows later: a cached answer, a count, a sign-in. */
export const onceItIsPaid = (
  { target, listing, turn, deps }: Job,
  { paymentId, offer }: { paymentId: string; offer: Offer },
): Pick<SignedJob, "signsIn" | "paid"> => ({
  signsIn: offersSignIn(offer) && !target.mcp,
  paid: async (seen) => {
    // Beside the answer: a counter is worth no waiting and no failure.
    if (listing)
      deps.listings
        .countUse(listing.id)
        .catch((err: unknown) =>
          deps.log.warn({ err, listingId: listing.id }, "use of a listing not counted"),
        );
    await turn?.keep(seen, paymentId);
  },
});

/** Sites where this wallet has paid, or will have. What settles later counts then: a sign-in reads the ledger. */
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
