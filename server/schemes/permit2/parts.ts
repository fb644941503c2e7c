/**
 * The common parts of the schemes over Permit2: everything except what is signed, what is charged, and who may
 * send it.
 */
import type { Address } from "viem";
import type { Authorization, SchemeTerms, SignedAuthorization } from "../../core/authorization.ts";
import { parseAddress, quoted } from "../../core/foreign-text.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import { isKeySignature } from "../../core/signatures.ts";
import type { Fields, Reason, Scheme, TransferPlan, WantedPayment } from "../scheme.ts";
import {
  diagnosisCalls,
  explainRevert,
  isEnded,
  PERMIT2,
  permitOf,
  REASON_EXPIRED,
  REASON_USED,
  settleCall,
  stateCall,
  storedNonce,
  type Proxy,
  type Spending,
} from "./onchain.ts";
import {
  examinePermit2,
  explainPermit2Failure,
  payerApprovalOf,
  permit2Extensions,
  type Permit2Payment,
} from "./reading.ts";
import { endFilter } from "./traces.ts";

/**
 * Upper bound: first payment to a new payee, with a first write to a nonce bitmap word, and a lowered
 * allowance.
 */
const KEY_GAS = 170_000n;
const PERMIT_GAS = 70_000n;

export function permit2Parts(own: {
  proxy: Proxy;
  reasonFailed: Reason;
  spendingOf(authorization: Authorization): Spending;
  /** The only account that may send it. */
  senderOf?(authorization: Authorization): Address | undefined;
}) {
  const revert: Scheme["explainRevert"] = (text) => explainRevert(text, own.reasonFailed);
  return {
    versions: [2],
    supportedExtensions: permit2Extensions,
    recognizes: ({ payload }) => "permit2Authorization" in payload,
    examine: examinePermit2,
    payerApproval: payerApprovalOf,
    diagnosisCalls: (ref) => diagnosisCalls(own.proxy, ref),
    explainFailure: (payment, found) => explainPermit2Failure(payment, found, revert),
    reasonSignature: "invalid_permit2_signature",
    reasonOtherAsset: "permit2_token_mismatch",
    reasonUnprepared: "permit2_allowance_required",
    planTransfer: (authorization: SignedAuthorization): TransferPlan => {
      const { signature, terms } = authorization;
      const permit = permitOf(terms);
      return {
        calls: () => [settleCall(own.spendingOf(authorization), signature, permit)],
        isPlainKey: isKeySignature(signature),
        deployment: undefined,
        keyGas: KEY_GAS + (permit ? PERMIT_GAS : 0n),
        sender: own.senderOf?.(authorization),
      };
    },
    stateCall,
    isEnded,
    isNamedInLogs: false,
    traceOf: ({ asset, from, to, value }) => `${asset} ${from} ${to} ${value}`.toLowerCase(),
    endFilter,
    explainRevert: revert,
    reasonUsed: REASON_USED,
    reasonExpired: REASON_EXPIRED,
    noncePrefix: "permit2:",
    spender: PERMIT2,
    contracts: { Permit2: PERMIT2, [`its proxy ${own.proxy.address}`]: own.proxy.address },
  } satisfies Partial<Scheme<Permit2Payment>>;
}

/**
 * Fields in which a seller may name the contract it expects to be paid through. Another contract is not paid.
 */
const CONTRACTS: Readonly<Record<string, "proxy" | "Permit2">> = {
  spender: "proxy",
  proxy: "proxy",
  proxyAddress: "proxy",
  permit2Proxy: "proxy",
  permit2: "Permit2",
  permit2Address: "Permit2",
  verifyingContract: "Permit2",
};

export function whyNotThroughPermit2(extra: Fields, proxy: Proxy): string | undefined {
  const { assetTransferMethod } = extra;
  if (assetTransferMethod !== undefined && assetTransferMethod !== "permit2")
    return `transfer method ${quoted(assetTransferMethod)} is not supported`;
  for (const [name, contract] of Object.entries(CONTRACTS)) {
    const named = extra[name];
    if (named === undefined) continue;
    const own = contract === "proxy" ? proxy.address : PERMIT2;
    const parsed = parseAddress(named);
    if (!parsed.ok || parsed.address !== own.toLowerCase())
      return `extra.${name} ${quoted(named)} is not the contract that this scheme uses (${own})`;
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
