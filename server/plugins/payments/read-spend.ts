import type { Address } from "viem";
import { ApiError } from "../../errors.ts";
import type { SpendRequest } from "../../schemas/payments.ts";
import { parseAddress } from "../../core/address.ts";
import { parsePayable } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";

export interface SpendOrder {
  chainId: number;
  asset: Address;
  to: Address;
  amountAtomic: bigint;
  memo?: string;
}

/** Reads what an agent wrote, or says which field is wrong and why. */
export function readSpend(
  body: SpendRequest,
  wallet: { walletAddress: Address; network: NetworkFacts | undefined },
): SpendOrder {
  const amount = parsePayable(body.amount);
  if (!amount.ok) throw fieldError("invalid_amount", "body.amount", amount.reason);
  const { network } = wallet;
  if (!network)
    throw fieldError("validation_failed", "body.network", "is not a network of this service");
  const to = readPayee(body.recipient, "body.recipient", {
    walletAddress: wallet.walletAddress,
    asset: network.usdc.address,
  });
  return {
    chainId: network.chainId,
    asset: network.usdc.address.toLowerCase() as Address,
    to,
    amountAtomic: amount.atomic,
    memo: body.memo,
  };
}

/** An address that can be paid: not nobody's, not the token's, not the payer's own. */
export function readPayee(
  text: string,
  path: string,
  wallet: { walletAddress: Address; asset: Address },
): Address {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw fieldError("invalid_address", path, parsed.reason);
  if (parsed.address === wallet.walletAddress.toLowerCase())
    throw fieldError("invalid_address", path, "is the paying wallet itself");
  if (parsed.address === wallet.asset.toLowerCase())
    throw fieldError("invalid_address", path, "is the token's contract, which cannot be paid");
  return parsed.address;
}

export function fieldError(
  code: "invalid_amount" | "invalid_address" | "validation_failed",
  path: string,
  message: string,
): ApiError {
  return new ApiError(code, {
    detail: `${path} ${message}`,
    extra: { errors: [{ path, message }] },
  });
}
