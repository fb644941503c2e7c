/** Where the payee prescribes an authorization's number (MPP: the hash of its challenge), and not this wallet. */
import { ApiError } from "../../errors.ts";
import type { ReserveResult, TargetRefusal } from "../guardrails/types.ts";

export const CHALLENGE_USED: TargetRefusal = { code: "challenge_already_used" };

type Denied = Extract<ReserveResult, { kind: "denied" }>;

/** An approval is an order for the one authorization that it numbers itself. */
export function notLiftable(denied: Denied): Denied {
  if (!denied.liftable) return denied;
  const { code, message, headers, extra } = denied.error;
  const detail = `${message} No approval lifts this: the seller asks by MPP, which prescribes the authorization's number.`;
  const error = new ApiError(code, { detail, headers, extra: { ...extra, approvable: false } });
  return { ...denied, error, liftable: false };
}
