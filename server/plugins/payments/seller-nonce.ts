/** The nonce of an authorization: random, or chosen by the seller (MPP: the hash of its challenge). */
import { randomBytes } from "node:crypto";
import type { Address, Hex } from "viem";
import type { AuthorizationRef } from "../../core/authorization.ts";
import { ApiError } from "../../errors.ts";
import type { Scheme } from "../../schemes/scheme.ts";
import type { ReserveRequest, TargetRefusal } from "../guardrails/types.ts";

export interface SellerNonceDeps {
  /** Whether the authorization is already used or canceled on chain. */
  isEnded(chainId: number, ref: AuthorizationRef): Promise<boolean>;
}

interface NonceRequest {
  nonce?: Hex;
  chainId: number;
  asset: Address;
  payer: { walletAddress: Address };
  refusal?: TargetRefusal;
}

export const nonceFor = (
  { nonce }: Pick<NonceRequest, "nonce">,
  { noncePrefix }: Pick<Scheme, "noncePrefix">,
): Pick<ReserveRequest, "nonce" | "prescribed"> =>
  nonce === undefined
    ? { nonce: `${noncePrefix ?? ""}0x${randomBytes(32).toString("hex")}` }
    : { nonce, prescribed: true };

/**
 * Our own rows are checked under the agent's lock. They may be deleted one day; the chain keeps its record.
 */
export async function refusalOf(
  deps: SellerNonceDeps,
  { nonce, chainId, asset, payer, refusal }: NonceRequest,
): Promise<TargetRefusal | undefined> {
  if (refusal !== undefined || nonce === undefined) return refusal;
  const isUsed = await deps.isEnded(chainId, { asset, from: payer.walletAddress, nonce });
  return isUsed ? { code: "challenge_already_used" } : undefined;
}

interface ApprovalRequest {
  nonce?: Hex;
  scheme?: Pick<Scheme, "noncePrefix">;
}

/**
 * Why an approval cannot allow this payment: it allows only the authorization whose nonce is its own digest.
 */
function whyNotApprovable({ nonce, scheme }: ApprovalRequest): string | undefined {
  if (nonce !== undefined) return "the seller uses MPP, which sets the authorization's nonce";
  if (scheme?.noncePrefix !== undefined)
    return "it would be paid through Permit2, which has its own nonces";
  return undefined;
}

/** A denial is reported as approvable only if an approval could allow the payment. */
export function withSellerNonce(request: ApprovalRequest, denial: ApiError): ApiError {
  const why = whyNotApprovable(request);
  if (why === undefined || denial.extra["approvable"] !== true) return denial;
  const { code, message, headers, extra } = denial;
  const detail = `${message} An approval cannot allow this: ${why}.`;
  return new ApiError(code, { detail, headers, extra: { ...extra, approvable: false } });
}
