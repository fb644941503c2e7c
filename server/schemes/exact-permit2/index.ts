/**
 * Scheme `exact` over Permit2: the payer signs for x402's proxy, which moves the signed amount to the signed
 * payee; anyone may relay it.
 */
import { getAddress } from "viem";
import { EXACT_PERMIT2 } from "../../../packages/paywall/src/scheme.ts";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import type { Scheme } from "../scheme.ts";
import {
  deadlineOf,
  EXACT_PROXY,
  nonceOf,
  spendingDigest,
  type Spending,
} from "../permit2/onchain.ts";
import { authorizePermit2, permit2Parts, whyNotThroughPermit2 } from "../permit2/parts.ts";
import { outcomeIn, unreadIn } from "../permit2/traces.ts";
import {
  checkPayee,
  checkSponsoring,
  checkWindowAndToken,
  isMeantForUs,
  readPermit2Payment,
  type Permit2Payment,
} from "../permit2/reading.ts";

export const exactPermit2: Scheme<Permit2Payment> = {
  ...EXACT_PERMIT2,
  ...permit2Parts({
    proxy: EXACT_PROXY,
    reasonFailed: "invalid_exact_evm_transaction_failed",
    spendingOf,
  }),

  read: (parts, checkContext) =>
    readPermit2Payment(
      {
        scheme: exactPermit2,
        proxy: EXACT_PROXY,
        reasonScheme: "unsupported_payload_type",
        reasonNetwork: "invalid_exact_evm_network_mismatch",
        mayChargeNothing: false,
        own: ({ maximum, permit }) => ({
          upto: undefined,
          value: maximum,
          terms: { scheme: "exact-permit2", ...(permit && { permit }) },
        }),
      },
      parts,
      checkContext,
    ),
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

  outcomeIn: (shown, expected) => outcomeIn(shown, expected, EXACT_PROXY),
  unreadIn: (shown, expected) =>
    unreadIn(shown, expected, EXACT_PROXY, expected.value).filter((one) => one === expected.value),

  transferDigest: (network, authorization) =>
    spendingDigest(network.chainId, spendingOf(authorization)),
  whyNotPayable: (extra) => whyNotThroughPermit2(extra, EXACT_PROXY),
  authorize: (wanted) => authorizePermit2(wanted, { scheme: "exact-permit2" }),
  proofPayload,
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
