/**
 * The common parts of the schemes over Permit2: everything except what is signed, what is charged, and who may
 * send it.
 */
import type { Address } from "viem";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import type { Reason, Scheme, TransferPlan } from "../scheme.ts";
import {
  diagnosisCalls,
  isEnded,
  PERMIT2,
  permitOf,
  settleCall,
  stateCall,
  type Proxy,
  type Spending,
} from "./onchain.ts";
import {
  examinePermit2,
  explainPermit2Failure,
  payerApprovalOf,
  hasPermit2Payload,
  permit2Extensions,
  type Permit2Payment,
} from "./reading.ts";
import { explainRevert, REASON_EXPIRED, REASON_USED } from "./reverts.ts";
import { endFilter } from "./traces.ts";

export const TRANSFER_METHOD = "permit2";
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
    transferMethod: TRANSFER_METHOD,
    versions: [2],
    supportedExtensions: permit2Extensions,
    recognizes: hasPermit2Payload,
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
        isPlainKey: signature.length === 132 && /1[bc]$/i.test(signature),
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
