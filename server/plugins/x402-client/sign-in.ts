/**
 * Sign-in with the wallet's signature (x402 extension sign-in-with-x): a site may return again what this wallet
 * paid for before.
 */
import { encodeSIWxHeader, SIGN_IN_WITH_X } from "@x402/extensions/sign-in-with-x";
import { siteOf } from "../../core/site.ts";
import { ApiError } from "../../errors.ts";
import { notePaidSite } from "../custody/paid-sites.ts";
import { requestTarget } from "./ask.ts";
import type { ChosenTerms } from "./choose.ts";
import type { UpstreamContent } from "./content.ts";
import type { Job, SignedPayment } from "./job.ts";
import { isSafe, type Prepared } from "./request.ts";
import type { Offer } from "./terms.ts";

export const offersSignIn = ({ extensions }: Pick<Offer, "extensions">): boolean =>
  extensions?.[SIGN_IN_WITH_X] !== undefined;

/**
 * Tried before a payment; if the site refuses it, the content is paid for.
 * With a safe method every failure leads to payment, so that a broken sign-in does not prevent it. Any other
 * response is the result.
 */
export async function signIn(
  { caller, target, entry, deps }: Job,
  offer: Offer,
  { payTo: payee }: ChosenTerms,
): Promise<UpstreamContent | undefined> {
  // A tool call has no field for such a signature.
  if (!offersSignIn(offer) || target.mcp) return undefined;
  const challenge = offer.extensions?.[SIGN_IN_WITH_X];
  const signInRequest = { agentId: caller.id, url: target.url.href, payee, challenge };
  const payload = await deps.custody.signIn(signInRequest).catch((err: unknown) => {
    // Whether it may be paid instead is decided by the payment itself.
    deps.log.warn({ err, agentId: caller.id }, "not signed in");
  });
  if (!payload) return undefined;
  const headers = { ...target.headers, [SIGN_IN_WITH_X]: encodeSIWxHeader(payload) };
  const answered = await requestTarget(entry.send, { ...target, headers }).catch(
    (error: unknown) => {
      if (!isSafe(target) || !isUpstream(error)) throw error;
    },
  );
  return answered?.kind === "free" && !isRefused(answered.seen, target) ? answered.seen : undefined;
}

const isRefused = ({ status }: UpstreamContent, target: Prepared["target"]): boolean =>
  isSafe(target) ? status >= 400 : status === 401 || status === 403;

/** No response, or an unusable one. */
const isUpstream = (error: unknown): boolean =>
  error instanceof ApiError && error.code.startsWith("upstream_");

/**
 * Records sites where this wallet has paid, also with payments that are not settled yet: a sign-in checks the
 * ledger.
 */
export async function notePaid(
  { target, deps }: Job,
  { key, facts, signsIn }: SignedPayment,
  how: { isSettled: boolean },
): Promise<void> {
  if (!signsIn) return;
  const paidAt = { agentId: key.agentId, payee: facts.payTo, site: siteOf(target.url) };
  await notePaidSite(deps.db, paidAt, key.paymentId, how).catch((err: unknown) =>
    deps.log.warn({ err, ...key }, "a site that this wallet paid was not recorded"),
  );
}
