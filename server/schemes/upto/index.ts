/**
 * Scheme `upto`: the payer signs a maximum over Permit2 and names the account that may settle it; that account charges
 * what was used, once. Nothing used is nothing sent.
 */
import { getAddress } from "viem";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import { isRecord, parseAddress } from "../../core/foreign-text.ts";
import { invalid, refuse, type PresentedParts, type Scheme, type TransferPlan } from "../scheme.ts";
import {
  deadlineOf,
  diagnosisCalls,
  endFilter,
  fateIn,
  mayBePaidIn,
  isEnded,
  nonceOf,
  settleCall,
  spendingDigest,
  stateCall,
  UPTO_PROXY,
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
/** As for `exact` over Permit2. */
const KEY_GAS = 170_000n;
const PERMIT_GAS = 70_000n;

const revert: Scheme["explainRevert"] = (text) =>
  explainRevert(text, "invalid_upto_evm_transaction_failed");

export const upto: Scheme<Permit2Payment> = {
  name: "upto",
  transferMethod: TRANSFER_METHOD,
  versions: [2],
  isMetered: true,

  recognizes: hasPermit2Payload,
  read: (parts, desk) => {
    if (!hasUptoPayload(parts)) return refuse("unsupported_payload_type");
    return readPermit2Payment(
      {
        scheme: upto,
        proxy: UPTO_PROXY,
        reasonScheme: "invalid_upto_evm_scheme",
        reasonNetwork: "invalid_upto_evm_network_mismatch",
        mayChargeNothing: desk.purpose === "settle",
        own: (witness, { maximum }, asked) => {
          const facilitator = parseAddress(witness["facilitator"]);
          if (!facilitator.ok)
            return invalid(`permit2Authorization.witness.facilitator ${facilitator.reason}.`);
          const isOurs = desk.relayers.some(
            (address) => address.toLowerCase() === facilitator.address,
          );
          // Checked against the maximum, as is a payment of which nothing was used; settled with what was used.
          const isCharged = desk.purpose === "settle" && asked.amountAtomic > 0n;
          const value = isCharged ? asked.amountAtomic : maximum;
          return { upto: { facilitator: facilitator.address, amount: value, isOurs }, value };
        },
        terms: ({ maximum, upto: charge }, permit) => ({
          scheme: "upto",
          maximum: maximum.toString(),
          facilitator: charge?.facilitator ?? UPTO_PROXY.address,
          ...(permit && { permit }),
        }),
      },
      parts,
      desk,
    );
  },
  examine: examinePermit2,
  checkFirst: (payment, nowSeconds) => {
    const { spending, amountAtomic, acceptedMismatch, purpose, payer } = payment;
    const isAmountRight =
      purpose === "settle" || (spending.maximum === amountAtomic && acceptedMismatch !== "amount");
    return (
      isMeantForUs(payment) ??
      checkPayee(payment) ??
      (spending.upto?.isOurs === true ? undefined : refuse("upto_facilitator_mismatch", payer)) ??
      checkWindowAndToken(payment, nowSeconds, isAmountRight)
    );
  },
  checkTerms: (payment, nowSeconds) => {
    const { spending, authorization, payer } = payment;
    const refusal = checkSponsoring(payment, nowSeconds);
    if (refusal || authorization.value <= spending.maximum) return refusal;
    return refuse("invalid_upto_evm_payload_settlement_exceeds_amount", payer);
  },
  diagnosisCalls: (ref) => diagnosisCalls(UPTO_PROXY, ref),
  explainFailure: (payment, found) => explainPermit2Failure(payment, found, revert),
  reasonSignature: "invalid_permit2_signature",
  reasonOtherAsset: "permit2_token_mismatch",

  planTransfer,
  cancelCall: () => {
    throw new Error("Permit2 takes a cancellation from the payer alone");
  },
  stateCall,
  isEnded,
  fateIn: (shown, expected) => fateIn(shown, expected, UPTO_PROXY),
  mayBePaidIn: (shown, expected) => mayBePaidIn(shown, expected, UPTO_PROXY),
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
  whyNotPayable: () => 'scheme "upto" is not supported',
  proofPayload,
  requirementExtra: ({ usdc }) => ({
    name: usdc.name,
    version: usdc.version,
    assetTransferMethod: TRANSFER_METHOD,
  }),
  // Spread over our lanes: a server asks once, at its start.
  supportedExtra: (relayers) => {
    const facilitatorAddress = relayers[Math.floor(Math.random() * relayers.length)];
    return facilitatorAddress && { facilitatorAddress };
  },
};

/** What the reference's type guard asks for. */
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
  const { terms } = authorization;
  if (terms?.scheme !== "upto") throw new Error("not an authorization of upto");
  return {
    proxy: UPTO_PROXY,
    owner: authorization.from,
    token: authorization.asset,
    maximum: BigInt(terms.maximum),
    nonce: nonceOf(authorization),
    deadline: deadlineOf(authorization),
    to: authorization.to,
    validAfter: authorization.validAfter,
    upto: { facilitator: terms.facilitator, amount: authorization.value, isOurs: true },
  };
}

function planTransfer(authorization: SignedAuthorization): TransferPlan {
  const { signature, terms } = authorization;
  const spending = spendingOf(authorization);
  const permit = terms?.permit;
  return {
    calls: [settleCall(spending, signature, permit)],
    isPlainKey: signature.length === 132 && /1[bc]$/i.test(signature),
    deployment: undefined,
    keyGas: KEY_GAS + (permit ? PERMIT_GAS : 0n),
    sender: terms?.scheme === "upto" ? terms.facilitator : undefined,
  };
}

function proofPayload({ signature, ...authorization }: SignedAuthorization): object {
  const {
    owner,
    token,
    maximum,
    nonce,
    deadline,
    to,
    validAfter,
    upto: charge,
  } = spendingOf(authorization);
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
        facilitator: charge && getAddress(charge.facilitator),
        validAfter: validAfter.toString(),
      },
    },
  };
}
