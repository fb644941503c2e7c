/** Scheme `exact` over Permit2: the payer signs for x402's proxy, which moves the signed amount to the signed payee; anyone may relay it. */
import { getAddress } from "viem";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import type { Scheme, TransferPlan } from "../scheme.ts";
import {
  deadlineOf,
  diagnosisCalls,
  endFilter,
  EXACT_PROXY,
  fateIn,
  mayBePaidIn,
  isEnded,
  nonceOf,
  settleCall,
  spendingDigest,
  stateCall,
  type Spending,
} from "../permit2/onchain.ts";
import { explainRevert, REASON_EXPIRED, REASON_USED } from "../permit2/reverts.ts";
import {
  checkPayee,
  checkSponsoring,
  checkWindowAndToken,
  examinePermit2,
  explainPermit2Failure,
  hasPermit2Payload,
  isMeantForUs,
  readPermit2Payment,
  type Permit2Payment,
} from "../permit2/reading.ts";

const TRANSFER_METHOD = "permit2";
/** First payment to a new payee, with a word of nonces that was never written, and the allowance lowered. */
const KEY_GAS = 170_000n;
const PERMIT_GAS = 70_000n;

const revert: Scheme["explainRevert"] = (text) =>
  explainRevert(text, "invalid_exact_evm_transaction_failed");

export const exactPermit2: Scheme<Permit2Payment> = {
  name: "exact",
  transferMethod: TRANSFER_METHOD,
  versions: [2],

  recognizes: hasPermit2Payload,
  read: (parts, desk) =>
    readPermit2Payment(
      {
        scheme: exactPermit2,
        proxy: EXACT_PROXY,
        reasonScheme: "unsupported_payload_type",
        reasonNetwork: "invalid_exact_evm_network_mismatch",
        mayChargeNothing: false,
        own: (_witness, { maximum }) => ({ upto: undefined, value: maximum }),
        terms: (_spending, permit) => ({ scheme: "exact-permit2", ...(permit && { permit }) }),
      },
      parts,
      desk,
    ),
  examine: examinePermit2,
  checkFirst: (payment, nowSeconds) => {
    const { spending, amountAtomic, acceptedMismatch } = payment;
    const isAmountRight = spending.maximum === amountAtomic && acceptedMismatch !== "amount";
    return (
      isMeantForUs(payment) ??
      checkPayee(payment) ??
      checkWindowAndToken(payment, nowSeconds, isAmountRight)
    );
  },
  checkTerms: checkSponsoring,
  diagnosisCalls: (ref) => diagnosisCalls(EXACT_PROXY, ref),
  explainFailure: (payment, found) => explainPermit2Failure(payment, found, revert),
  reasonSignature: "invalid_permit2_signature",
  reasonOtherAsset: "permit2_token_mismatch",

  planTransfer,
  cancelCall: () => {
    throw new Error("Permit2 takes a cancellation from the payer alone");
  },
  stateCall,
  isEnded,
  fateIn: (shown, expected) => fateIn(shown, expected, EXACT_PROXY),
  mayBePaidIn: (shown, expected) => mayBePaidIn(shown, expected, EXACT_PROXY),
  isNamedInLogs: false,
  traceOf: ({ asset, from, to, value }) => `${asset} ${from} ${to} ${value}`.toLowerCase(),
  endFilter,
  explainRevert: revert,
  reasonUsed: REASON_USED,
  reasonExpired: REASON_EXPIRED,

  transferDigest: (network, authorization) =>
    spendingDigest(network.chainId, spendingOf(authorization)),
  cancelDigest: () => {
    throw new Error("Permit2 takes a cancellation from the payer alone");
  },
  // An agent pays a seller only with what can be taken back by a relayer.
  whyNotPayable: () => `transfer method "${TRANSFER_METHOD}" is not supported`,
  proofPayload,
  requirementExtra: ({ usdc }) => ({
    name: usdc.name,
    version: usdc.version,
    assetTransferMethod: TRANSFER_METHOD,
  }),
};

function spendingOf(authorization: Authorization): Spending {
  return {
    proxy: EXACT_PROXY,
    owner: authorization.from,
    token: authorization.asset,
    maximum: authorization.value,
    nonce: nonceOf(authorization),
    deadline: deadlineOf(authorization),
    to: authorization.to,
    validAfter: authorization.validAfter,
  };
}

function planTransfer(authorization: SignedAuthorization): TransferPlan {
  const { signature, terms } = authorization;
  const permit = terms?.permit;
  return {
    calls: [settleCall(spendingOf(authorization), signature, permit)],
    isPlainKey: signature.length === 132 && /1[bc]$/i.test(signature),
    deployment: undefined,
    keyGas: KEY_GAS + (permit ? PERMIT_GAS : 0n),
  };
}

function proofPayload({ signature, ...authorization }: SignedAuthorization): object {
  const { owner, token, maximum, nonce, deadline, to, validAfter } = spendingOf(authorization);
  return {
    signature,
    permit2Authorization: {
      from: getAddress(owner),
      permitted: { token: getAddress(token), amount: maximum.toString() },
      spender: EXACT_PROXY.address,
      nonce: nonce.toString(),
      deadline: deadline.toString(),
      witness: { to: getAddress(to), validAfter: validAfter.toString() },
    },
  };
}
