/** What an agent's wallet signs for Permit2, and when it refuses a seller's terms. */
import { isAddressEqual, type Address } from "viem";
import type { Authorization, SchemeTerms } from "../../core/authorization.ts";
import { parseAddress, quoted } from "../../core/foreign-text.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import type { Fields, WantedPayment } from "../scheme.ts";
import { PERMIT2, storedNonce, type Proxy } from "./onchain.ts";

/**
 * Fields in which a seller may name the contract it expects to be paid through. Another contract is not paid.
 */
const CONTRACTS: Record<string, (proxy: Proxy) => Address> = {
  spender: ({ address }) => address,
  proxy: ({ address }) => address,
  proxyAddress: ({ address }) => address,
  permit2Proxy: ({ address }) => address,
  permit2: () => PERMIT2,
  permit2Address: () => PERMIT2,
  verifyingContract: () => PERMIT2,
};

export function whyNotThroughPermit2(extra: Fields, proxy: Proxy): string | undefined {
  const { assetTransferMethod } = extra;
  if (assetTransferMethod !== undefined && assetTransferMethod !== "permit2")
    return `transfer method ${quoted(assetTransferMethod)} is not supported`;
  for (const [name, contractOf] of Object.entries(CONTRACTS)) {
    const named = extra[name];
    if (named === undefined) continue;
    const parsed = parseAddress(named);
    if (!parsed.ok || !isAddressEqual(parsed.address, contractOf(proxy)))
      return `extra.${name} ${quoted(named)} is not the contract that this scheme uses (${contractOf(proxy)})`;
  }
  return undefined;
}

/**
 * The only account that may charge, as the seller names it. The zero address and Multicall3, which anyone can
 * use, are refused.
 */
export function readFacilitator(extra: Fields): { address: Address } | { why: string } {
  const named = extra["facilitatorAddress"];
  const parsed = parseAddress(named);
  if (!parsed.ok) return { why: `extra.facilitatorAddress ${quoted(named)} ${parsed.reason}` };
  if (parsed.address === MULTICALL3_ADDRESS.toLowerCase())
    return { why: "extra.facilitatorAddress is a contract that anyone can use" };
  return parsed;
}

export const authorizePermit2 = (wanted: WantedPayment, terms: SchemeTerms): Authorization => ({
  chainId: wanted.network.chainId,
  asset: wanted.network.usdc.address.toLowerCase() as Address,
  from: wanted.from,
  to: wanted.payTo,
  value: wanted.amountAtomic,
  validAfter: wanted.validAfter,
  validBefore: wanted.validBefore,
  nonce: storedNonce(BigInt(wanted.nonce)),
  terms,
});
