/** Payments that nobody can cancel for their payer: what is done where a seller fails. */
import type { SignedAuthorization } from "../../core/authorization.ts";
import { paymentSchemeOf } from "../../schemes/index.ts";
import type { PaymentKey } from "../payments/pay-order.ts";
import type { CancelOutcome } from "../settlement/types.ts";
import type { ClientDeps } from "./request.ts";

/** A seller that failed has collected by now, or may do so until the authorization has run out. */
const LOOK_MS = 3_000;

/** From then on nobody can use it. */
export const endOf = ({ validBefore }: SignedAuthorization): Date =>
  new Date(Number(validBefore) * 1_000);

export const isUncancelable = (authorization: SignedAuthorization): boolean =>
  paymentSchemeOf(authorization).cancelDigest === undefined;

/** What nobody can cancel for its payer: the chain says whether it was used, and else its end is waited for. */
export async function lookOnce(
  deps: Pick<ClientDeps, "settlement" | "settleWaitMs">,
  key: PaymentKey,
  authorization: SignedAuthorization,
): Promise<CancelOutcome> {
  const timeoutMs = Math.min(deps.settleWaitMs, LOOK_MS);
  const found = await deps.settlement.wait(key.paymentId, timeoutMs, { look: true });
  if (found.status === "settled") return found;
  if (found.status !== "pending") return { status: "expired" };
  return { status: "lapsing", until: endOf(authorization) };
}

/** When the budget of what is still open is free again, for sure. */
export const returningAt = (authorization: SignedAuthorization): { budgetReturnsAt?: string } =>
  isUncancelable(authorization) ? { budgetReturnsAt: endOf(authorization).toISOString() } : {};
