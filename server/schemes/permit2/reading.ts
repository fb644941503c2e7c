/**
 * Reads a Permit2 payment (`exact` or `upto`) from a protocol body, and checks everything that needs no chain.
 * Pure, in the reference implementation's order, so that the reason codes agree.
 */
import { bytesToHex, type Address, type Hex } from "viem";
import type { Authorization, TokenPermit } from "../../core/authorization.ts";
import { isRecord, parseAddress } from "../../core/foreign-text.ts";
import { checksummedAddress } from "../../core/keccak.ts";
import { parseAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { signatureOfKey, unwrapSignature } from "../../core/signatures.ts";
import {
  checksummed,
  contradiction,
  invalid,
  readNetwork,
  readSellerTerms,
  refuse,
  type SellerTerms,
  type CheckContext,
  type Diagnosis,
  type Fields,
  type PayerApproval,
  type Payment,
  type PresentedParts,
  type Reason,
  type Refusal,
  type Scheme,
} from "../scheme.ts";
import { PERMIT2, spendingDigest, storedNonce, type Proxy, type Spending } from "./onchain.ts";
import { uintOf } from "../../core/abi.ts";
import {
  APPROVAL_EXTENSION,
  checkApproval,
  isAddressText,
  isVersionText,
  readApproval,
  readSigned,
  type Approval,
} from "./approval.ts";

export interface Permit2Payment extends Payment {
  readonly spending: Spending;
  /** Lower case. */
  readonly spender: string;
  readonly acceptedMismatch: "payTo" | "amount" | "asset" | undefined;
  readonly sponsoring: Sponsoring | undefined;
  /** Undefined if the token's permit was sent too: then the permit is used. */
  readonly approval: Approval | undefined;
  readonly purpose: CheckContext["purpose"];
  /** Only for `upto`: one of our accounts may send it. */
  readonly isOurs: boolean | undefined;
}

/** The token's permit (EIP-2612) as the payload contains it, not verified yet. */
interface Sponsoring {
  readonly isWellFormed: boolean;
  readonly from: string;
  readonly asset: string;
  readonly spender: string;
  readonly permit: TokenPermit;
}

interface Reading {
  readonly scheme: Scheme<Permit2Payment>;
  readonly proxy: Proxy;
  readonly reasonScheme: Reason;
  readonly reasonNetwork: Reason;
  readonly mayChargeNothing: boolean;
  /** The scheme's own part of the payment: the charged amount, and who may send it. */
  own(signed: {
    witness: Fields;
    maximum: bigint;
    required: SellerTerms;
    payer: Address | undefined;
    permit: TokenPermit | undefined;
  }): Own | Refusal;
}

interface Own {
  readonly upto: Spending["upto"];
  readonly value: bigint;
  readonly terms: Authorization["terms"];
  readonly isOurs?: boolean;
}

export function readPermit2Payment(
  reading: Reading,
  parts: PresentedParts,
  { networks, purpose }: CheckContext,
): { readonly isValid: true; readonly payment: Permit2Payment } | Refusal {
  const { scheme, proxy } = reading;
  const { version, accepted, payload } = parts;
  const { permit2Authorization: fields, signature } = payload;
  if (!isRecord(fields)) return invalid("payload.permit2Authorization must be an object.");
  const payer = checksummed(fields["from"]);
  if (accepted["scheme"] !== scheme.name) return refuse(reading.reasonScheme, payer);
  const agreed = readNetwork(parts, networks, { payer, reasonMismatch: reading.reasonNetwork });
  if ("reason" in agreed) return agreed;
  const { network, networkName } = agreed;
  const required = readSellerTerms(parts, payer, reading.mayChargeNothing);
  if ("reason" in required) return required;
  const signed = readAuthorization(fields, payer);
  if ("reason" in signed) return signed;
  if (typeof signature !== "string") return invalid("payload.signature must be a string.", payer);
  const { from, token, maximum, nonce, deadline, to, validAfter, spender, witness } = signed;
  const sponsoring = readSponsoring(parts.extensions[PERMIT_EXTENSION]);
  const own = reading.own({ witness, maximum, required, payer, permit: sponsoring?.permit });
  if ("reason" in own) return own;
  const spending: Spending = {
    proxy,
    owner: from,
    token,
    maximum,
    nonce,
    deadline,
    to,
    validAfter,
    upto: own.upto,
  };
  return {
    isValid: true,
    payment: {
      scheme,
      version,
      network,
      networkName,
      // A deployed wallet verifies the inner signature of an envelope; Permit2 accepts no signature of an
      // undeployed one.
      signature: unwrapSignature(signature)?.inner ?? signature,
      payTo: required.payTo,
      amountAtomic: required.amountAtomic,
      spending,
      spender,
      acceptedMismatch: contradiction(parts, required),
      sponsoring,
      approval: sponsoring ? undefined : readApproval(parts, network),
      purpose,
      isOurs: own.isOurs,
      authorization: {
        chainId: network.chainId,
        asset: required.asset,
        from,
        to,
        value: own.value,
        validAfter,
        validBefore: deadline + 1n,
        nonce: storedNonce(nonce),
        terms: own.terms,
      },
      payer: checksummedAddress(from),
    },
  };
}

interface Signed {
  from: Address;
  token: Address;
  maximum: bigint;
  spender: Address;
  nonce: bigint;
  deadline: bigint;
  to: Address;
  validAfter: bigint;
  witness: Fields;
}

function readAuthorization(fields: Fields, payer: Address | undefined): Signed | Refusal {
  const { permitted, witness } = fields;
  if (!isRecord(permitted))
    return invalid("permit2Authorization.permitted must be an object.", payer);
  if (!isRecord(witness)) return invalid("permit2Authorization.witness must be an object.", payer);
  const from = parseAddress(fields["from"]);
  if (!from.ok) return invalid(`permit2Authorization.from ${from.reason}.`);
  const spender = parseAddress(fields["spender"]);
  if (!spender.ok) return invalid(`permit2Authorization.spender ${spender.reason}.`, payer);
  const token = parseAddress(permitted["token"]);
  if (!token.ok) return invalid(`permit2Authorization.permitted.token ${token.reason}.`, payer);
  const to = parseAddress(witness["to"]);
  if (!to.ok) return invalid(`permit2Authorization.witness.to ${to.reason}.`, payer);
  const numbers = [permitted["amount"], fields["nonce"], fields["deadline"], witness["validAfter"]];
  const [maximum, nonce, deadline, validAfter] = numbers.map(parseAtomic);
  if (
    maximum === undefined ||
    nonce === undefined ||
    deadline === undefined ||
    validAfter === undefined
  )
    return invalid(
      "permit2Authorization.permitted.amount, nonce, deadline and witness.validAfter must be decimal strings of a uint256.",
      payer,
    );
  return {
    from: from.address,
    token: token.address,
    maximum,
    spender: spender.address,
    nonce,
    deadline,
    to: to.address,
    validAfter,
    witness,
  };
}

export const PERMIT_EXTENSION = "eip2612GasSponsoring";
export const permit2Extensions = ({ sendsApprovals }: NetworkFacts): string[] => [
  PERMIT_EXTENSION,
  ...(sendsApprovals ? [APPROVAL_EXTENSION] : []),
];

const isAmount = (text: string): boolean => parseAtomic(text) !== undefined;

export function readSponsoring(extension: unknown): Sponsoring | undefined {
  const signed = readSigned(extension, {
    from: isAddressText,
    asset: isAddressText,
    spender: isAddressText,
    amount: isAmount,
    nonce: isAmount,
    deadline: isAmount,
    signature: (text) => /^0x[a-f0-9]{130}$/.test(text),
    version: isVersionText,
  });
  if (!signed) return undefined;
  const { from, asset, spender, amount, deadline, signature } = signed.texts;
  return {
    isWellFormed: signed.isWellFormed,
    from,
    asset,
    spender,
    permit: { amount, deadline, signature: signature as Hex },
  };
}

/**
 * Verified in this process. Permit2 accepts only 65 bytes with v 27 or 28, so an ordinary account's signature
 * is normalized.
 */
export function examinePermit2(payment: Permit2Payment): { digest: Hex; ecdsa: Hex | undefined } {
  const { chainId, from } = payment.authorization;
  const digest = spendingDigest(chainId, payment.spending);
  return { digest: bytesToHex(digest), ecdsa: signatureOfKey(digest, payment.signature, from) };
}

/** A payment must still be valid when it reaches a block; the protocol's minimum. */
const MIN_LIFETIME_SECONDS = 6n;

export const isMeantForUs = (payment: Permit2Payment): Refusal | undefined =>
  payment.spender === payment.spending.proxy.address.toLowerCase()
    ? undefined
    : refuse("invalid_permit2_spender", payment.payer);

export function checkPayee(payment: Permit2Payment): Refusal | undefined {
  const { payer, authorization, payTo, acceptedMismatch } = payment;
  return authorization.to !== payTo || acceptedMismatch === "payTo"
    ? refuse("invalid_permit2_recipient_mismatch", payer)
    : undefined;
}

export function checkWindowAndToken(
  payment: Permit2Payment,
  nowSeconds: bigint | undefined,
  isAmountRight: boolean,
): Refusal | undefined {
  const { payer, spending, acceptedMismatch, authorization } = payment;
  if (nowSeconds !== undefined) {
    if (spending.deadline < nowSeconds + MIN_LIFETIME_SECONDS)
      return refuse("permit2_deadline_expired", payer);
    if (spending.validAfter > nowSeconds) return refuse("permit2_not_yet_valid", payer);
  }
  if (!isAmountRight) return refuse("permit2_amount_mismatch", payer);
  if (spending.token !== authorization.asset || acceptedMismatch === "asset")
    return refuse("permit2_token_mismatch", payer);
  return undefined;
}

/**
 * Checks what the payer sent to allow Permit2 to move its money: it must be for this payer, this token and
 * Permit2.
 */
export function checkSponsoring(
  payment: Permit2Payment,
  nowSeconds: bigint | undefined,
): Refusal | undefined {
  const { payer, authorization, sponsoring } = payment;
  const approved = readPayerApproval(payment);
  if (approved && "reason" in approved) return approved;
  return sponsoring && checkPermit(sponsoring, { payer, ...authorization }, nowSeconds);
}

/** The token's permit must be this payer's, for this token and for Permit2. */
export function checkPermit(
  { isWellFormed, from, asset, spender, permit }: Sponsoring,
  payment: { payer: Address; from: Address; asset: Address },
  nowSeconds: bigint | undefined,
): Refusal | undefined {
  const { payer } = payment;
  if (!isWellFormed) return refuse("invalid_eip2612_extension_format", payer);
  if (from !== payment.from) return refuse("eip2612_from_mismatch", payer);
  if (asset !== payment.asset) return refuse("eip2612_asset_mismatch", payer);
  if (spender !== PERMIT2.toLowerCase()) return refuse("eip2612_spender_not_permit2", payer);
  const isLate =
    nowSeconds !== undefined && BigInt(permit.deadline) < nowSeconds + MIN_LIFETIME_SECONDS;
  return isLate ? refuse("eip2612_deadline_expired", payer) : undefined;
}

const readPayerApproval = (payment: Permit2Payment): PayerApproval | Refusal | undefined => {
  const { payer, authorization, spending, approval, network } = payment;
  const { from, asset } = authorization;
  const bound = { payer, from, asset, chainId: network.chainId, amount: spending.maximum };
  return approval && checkApproval(approval, bound);
};

export function payerApprovalOf(payment: Permit2Payment): PayerApproval | undefined {
  const found = readPayerApproval(payment);
  return found && "raw" in found ? found : undefined;
}

/**
 * Reports the first that is missing: proxy, balance, allowance. A used nonce and everything else share one
 * code.
 */
export function explainPermit2Failure(
  { payer, amountAtomic }: Permit2Payment,
  found: Diagnosis,
  explainRevert: Scheme["explainRevert"],
): Refusal {
  if (uintOf(found.reads?.[0]) === undefined) return refuse("permit2_proxy_not_deployed", payer);
  if ((found.balanceAtomic ?? amountAtomic) < amountAtomic)
    return refuse("permit2_insufficient_balance", payer);
  if ((uintOf(found.reads?.[1]) ?? amountAtomic) < amountAtomic)
    return refuse("permit2_allowance_required", payer);
  const message = found.used === true ? "The nonce has been used." : undefined;
  const meaning = found.revert === undefined ? undefined : explainRevert(found.revert).message;
  return refuse("permit2_simulation_failed", payer, message ?? meaning);
}
