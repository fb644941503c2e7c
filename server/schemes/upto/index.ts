/**
 * Scheme `upto`: the payer signs a maximum over Permit2 and names the account that may settle it; that account
 * charges the used amount, once. If nothing was used, nothing is sent.
 */
import { getAddress } from "viem";
import { UPTO } from "../../../packages/paywall/src/scheme.ts";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import { isRecord, parseAddress } from "../../core/foreign-text.ts";
import { invalid, refuse, type PresentedParts, type Scheme } from "../scheme.ts";
import {
  deadlineOf,
  nonceOf,
  spendingDigest,
  UPTO_PROXY,
  type Spending,
} from "../permit2/onchain.ts";
import {
  authorizePermit2,
  permit2Parts,
  readFacilitator,
  whyNotThroughPermit2,
} from "../permit2/parts.ts";
import { outcomeIn, paidIn, unreadIn } from "../permit2/traces.ts";
import {
  checkPayee,
  checkSponsoring,
  checkWindowAndToken,
  isMeantForUs,
  readPermit2Payment,
  type Permit2Payment,
} from "../permit2/reading.ts";

export const upto: Scheme<Permit2Payment> = {
  ...UPTO,
  ...permit2Parts({
    proxy: UPTO_PROXY,
    reasonFailed: "invalid_upto_evm_transaction_failed",
    spendingOf,
    senderOf: ({ terms }) => termsOf(terms).facilitator,
  }),

  read: (parts, checkContext) => {
    if (!hasUptoPayload(parts)) return refuse("unsupported_payload_type");
    return readPermit2Payment(
      {
        scheme: upto,
        proxy: UPTO_PROXY,
        reasonScheme: "invalid_upto_evm_scheme",
        reasonNetwork: "invalid_upto_evm_network_mismatch",
        mayChargeNothing: checkContext.purpose === "settle",
        own: ({ witness, maximum, required, payer, permit }) => {
          const facilitator = parseAddress(witness["facilitator"]);
          if (!facilitator.ok)
            return invalid(
              `permit2Authorization.witness.facilitator ${facilitator.reason}.`,
              payer,
            );
          const isOurs = checkContext.relayers.some(
            (address) => address.toLowerCase() === facilitator.address,
          );
          // Verify requires the maximum. Settle charges the used amount; if nothing was used, it checks the maximum.
          const value = required.amountAtomic > 0n ? required.amountAtomic : maximum;
          const { address } = facilitator;
          return {
            upto: { facilitator: address, amount: value },
            value,
            terms: {
              scheme: "upto",
              maximum: maximum.toString(),
              facilitator: address,
              ...(permit && { permit }),
            },
            isOurs,
          };
        },
      },
      parts,
      checkContext,
    );
  },
  checkFirst: (payment, nowSeconds) => {
    const { spending, amountAtomic, acceptedMismatch, purpose, payer, isOurs } = payment;
    const isAmountRight =
      purpose === "settle" || (spending.maximum === amountAtomic && acceptedMismatch !== "amount");
    return (
      isMeantForUs(payment) ??
      checkPayee(payment) ??
      (isOurs ? undefined : refuse("upto_facilitator_mismatch", payer)) ??
      checkWindowAndToken(payment, nowSeconds, isAmountRight)
    );
  },
  checkTerms: (payment, nowSeconds) => {
    const { spending, authorization, payer } = payment;
    const refusal = checkSponsoring(payment, nowSeconds);
    if (refusal || authorization.value <= spending.maximum) return refusal;
    return refuse("invalid_upto_evm_payload_settlement_exceeds_amount", payer);
  },

  outcomeIn: (shown, expected) => outcomeIn(shown, expected, UPTO_PROXY, openAmount(expected)),
  chargedIn: (shown, expected) => paidIn(shown, expected, UPTO_PROXY, openAmount(expected)),
  unreadIn: (shown, expected) => {
    const most = openAmount(expected);
    const found = unreadIn(shown, expected, UPTO_PROXY, most ?? expected.value);
    return most === undefined ? found.filter((one) => one === expected.value) : found;
  },

  transferDigest: (network, authorization) =>
    spendingDigest(network.chainId, spendingOf(authorization)),
  whyNotPayable: (extra) => {
    const why = whyNotThroughPermit2(extra, UPTO_PROXY);
    if (why !== undefined) return why;
    const facilitator = readFacilitator(extra);
    return "why" in facilitator ? facilitator.why : undefined;
  },
  authorize: (wanted) => {
    const facilitator = readFacilitator(wanted.extra);
    if ("why" in facilitator) throw new Error(facilitator.why);
    return authorizePermit2(wanted, {
      scheme: "upto",
      maximum: wanted.amountAtomic.toString(),
      facilitator: facilitator.address,
    });
  },
  mostOf: ({ terms }) => BigInt(termsOf(terms).maximum),
  proofPayload,
  // Random, to spread payments over our lanes: a server reads this once, at start.
  supportedExtra: (relayers) => {
    const facilitatorAddress = relayers[Math.floor(Math.random() * relayers.length)];
    return facilitatorAddress && { facilitatorAddress };
  },
};

function termsOf(terms: Authorization["terms"]) {
  if (terms?.scheme !== "upto") throw new Error("not an authorization of upto");
  return terms;
}

/** Until the charge is known, it may be anything up to the maximum. */
function openAmount({ terms, value }: Pick<Authorization, "terms" | "value">): bigint | undefined {
  const maximum = BigInt(termsOf(terms).maximum);
  return value === maximum ? maximum : undefined;
}

/** The fields that the reference implementation's type guard requires. */
function hasUptoPayload({ payload }: PresentedParts): boolean {
  const { signature, permit2Authorization: signed } = payload;
  if (!isRecord(signed)) return false;
  const { permitted, witness, from, spender, nonce, deadline } = signed;
  if (!isRecord(permitted) || !isRecord(witness)) return false;
  const { facilitator, to, validAfter } = witness;
  const { token, amount } = permitted;
  const texts = [signature, from, spender, nonce, deadline, token, amount];
  return [...texts, facilitator, to, validAfter].every((text) => typeof text === "string");
}

function spendingOf(authorization: Authorization): Spending {
  const { maximum, facilitator } = termsOf(authorization.terms);
  return {
    proxy: UPTO_PROXY,
    owner: authorization.from,
    token: authorization.asset,
    maximum: BigInt(maximum),
    nonce: nonceOf(authorization),
    deadline: deadlineOf(authorization),
    to: authorization.to,
    validAfter: authorization.validAfter,
    upto: { facilitator, amount: authorization.value },
  };
}

function proofPayload({ signature, ...authorization }: SignedAuthorization): object {
  const { owner, token, maximum, nonce, deadline, to, validAfter } = spendingOf(authorization);
  return {
    signature,
    permit2Authorization: {
      from: getAddress(owner),
      permitted: { token: getAddress(token), amount: maximum.toString() },
      spender: UPTO_PROXY.address,
      nonce: nonce.toString(),
      deadline: deadline.toString(),
      witness: {
        to: getAddress(to),
        facilitator: getAddress(termsOf(authorization.terms).facilitator),
        validAfter: validAfter.toString(),
      },
    },
  };
}
