/** Scheme `exact` over EIP-3009: the payer signs a transfer of the token itself, and anyone may relay it. */
import { bytesToHex, getAddress, type Address, type Hex } from "viem";
import { EXACT_EIP3009 } from "../../../packages/paywall/src/scheme.ts";
import { uintOf } from "../../core/abi.ts";
import type { SignedAuthorization, Authorization } from "../../core/authorization.ts";
import { isKeySignature, signatureOfKey, unwrapSignature } from "../../core/signatures.ts";
import { tokenDomainOf, type NetworkFacts } from "../../core/networks.ts";
import {
  checksummed,
  contradiction,
  invalid,
  readNetwork,
  readSellerTerms,
  refuse,
  type Scheme,
  type TransferPlan,
  type Refusal,
  type Diagnosis,
  type Fields,
  type Payment,
  type PresentedParts,
} from "../scheme.ts";
import {
  authorizationStateCalldata,
  cancelCalldata,
  transferCalldata,
  cancelDigest,
  transferDigest,
  endFilter,
  outcomeIn,
  explainRevert,
  REASON_EXPIRED,
  REASON_USED,
} from "./onchain.ts";
import { parseAddress, isRecord, plainText, quoted } from "../../core/foreign-text.ts";
import { checksummedAddress } from "../../core/keccak.ts";
import { USDC_DECIMALS, parseAtomic } from "../../core/money.ts";

export const exactEip3009: Scheme<ExactPayment> = {
  ...EXACT_EIP3009,
  versions: [1, 2],

  read: (parts, { networks }) => readExactPayment(exactEip3009, parts, networks),
  examine,
  checkTerms,
  explainFailure,
  reasonSignature: "invalid_exact_evm_signature",
  reasonOtherAsset: "invalid_exact_evm_eip3009_not_supported",

  planTransfer,
  cancelCall: ({ asset, from, nonce }, signature) => ({
    target: asset,
    data: cancelCalldata(from, nonce, signature),
  }),
  stateCall: ({ asset, from, nonce }) => ({
    target: asset,
    data: authorizationStateCalldata(from, nonce),
  }),
  isEnded: (_ref, answer) => {
    const word = uintOf(answer);
    return word === undefined ? undefined : word !== 0n;
  },
  outcomeIn: ({ logs }, expected) => outcomeIn(logs, expected),
  isNamedInLogs: true,
  traceOf: () => undefined,
  endFilter,
  explainRevert,
  reasonUsed: REASON_USED,
  reasonExpired: REASON_EXPIRED,

  transferDigest: (network, authorization) => transferDigest(tokenDomainOf(network), authorization),
  cancelDigest,
  whyNotPayable,
  authorize: ({ network, from, payTo, amountAtomic, validAfter, validBefore, nonce }) => ({
    chainId: network.chainId,
    asset: network.usdc.address.toLowerCase() as Address,
    from,
    to: payTo,
    value: amountAtomic,
    validAfter,
    validBefore,
    nonce,
  }),
  proofPayload,
};

/** Upper bound: first payment to a new payee, through the token's proxy contract. */
const KEY_GAS = 100_000n;

/**
 * Verified in this process. Uses the EIP-712 domain that the requirements name; explainFailure reports a wrong
 * one.
 */
function examine(payment: ExactPayment): { digest: Hex; ecdsa: Hex | undefined } {
  const { authorization, domainName, domainVersion } = payment;
  const domain = {
    name: domainName,
    version: domainVersion,
    chainId: authorization.chainId,
    verifyingContract: authorization.asset,
  };
  const digest = transferDigest(domain, authorization);
  const ecdsa = signatureOfKey(digest, payment.signature, authorization.from);
  return { digest: bytesToHex(digest), ecdsa };
}

/**
 * A wallet that is not deployed yet signs in an ERC-6492 envelope, which names the factory call that deploys
 * it. The facilitator calls only factories that the operator allows.
 */
function planTransfer(authorization: SignedAuthorization): TransferPlan {
  const { asset, signature } = authorization;
  const { inner, deployment } = unwrapSignature(signature) ?? {
    inner: signature,
    deployment: undefined,
  };
  return {
    calls() {
      const transfer = { target: asset, data: transferCalldata(authorization, inner) };
      return deployment
        ? [{ target: deployment.factory, data: deployment.data }, transfer]
        : [transfer];
    },
    isPlainKey: deployment === undefined && isKeySignature(inner),
    deployment,
    keyGas: KEY_GAS,
  };
}

function proofPayload({ signature, ...authorization }: SignedAuthorization): object {
  return {
    signature,
    authorization: {
      from: getAddress(authorization.from),
      to: getAddress(authorization.to),
      value: authorization.value.toString(),
      validAfter: authorization.validAfter.toString(),
      validBefore: authorization.validBefore.toString(),
      nonce: authorization.nonce,
    },
  };
}

export interface ExactPayment extends Payment {
  readonly domainName: string;
  readonly domainVersion: string;
  /** A field in which the payer accepted something other than what the seller requires. */
  readonly acceptedMismatch: "payTo" | "amount" | "asset" | undefined;
}

/** In the order of the reference implementation, so that the reason codes agree. */
function readExactPayment(
  scheme: Scheme<ExactPayment>,
  parts: PresentedParts,
  networks: readonly NetworkFacts[],
): { readonly isValid: true; readonly payment: ExactPayment } | Refusal {
  const { version, accepted, payload, requirements } = parts;
  if ("permit2Authorization" in payload) return refuse("unsupported_payload_type");
  const { authorization, signature } = payload;
  if (!isRecord(authorization)) return invalid("payload.authorization must be an object.");
  const payer = checksummed(authorization["from"]);
  if (accepted["scheme"] !== scheme.name || requirements["scheme"] !== scheme.name)
    return refuse("invalid_exact_evm_scheme", payer);
  const extra = isRecord(requirements["extra"]) ? requirements["extra"] : {};
  const { name: domainName, version: domainVersion } = extra;
  if (!isText(domainName) || !isText(domainVersion))
    return refuse("invalid_exact_evm_missing_eip712_domain", payer);
  const reasonMismatch = "invalid_exact_evm_network_mismatch";
  const agreed = readNetwork(parts, networks, { payer, reasonMismatch });
  if ("reason" in agreed) return agreed;
  const { network, networkName } = agreed;
  const required = readSellerTerms(parts, payer, false);
  if ("reason" in required) return required;
  const { asset, payTo, amountAtomic } = required;
  const signed = readAuthorization(authorization, payer);
  if ("reason" in signed) return signed;
  if (typeof signature !== "string") return invalid("payload.signature must be a string.", payer);
  return {
    isValid: true,
    payment: {
      scheme,
      version,
      network,
      networkName,
      domainName,
      domainVersion,
      signature,
      payTo,
      amountAtomic,
      acceptedMismatch: contradiction(parts, required),
      authorization: { chainId: network.chainId, asset, ...signed },
      payer: checksummedAddress(signed.from),
    },
  };
}

type Signed = Omit<Authorization, "chainId" | "asset">;

function readAuthorization(fields: Fields, payer: Address | undefined): Signed | Refusal {
  const from = parseAddress(fields["from"]);
  if (!from.ok) return invalid(`authorization.from ${from.reason}.`);
  const to = parseAddress(fields["to"]);
  if (!to.ok) return invalid(`authorization.to ${to.reason}.`, payer);
  const value = parseAtomic(fields["value"]);
  const validAfter = parseAtomic(fields["validAfter"]);
  const validBefore = parseAtomic(fields["validBefore"]);
  if (value === undefined || validAfter === undefined || validBefore === undefined) {
    return invalid(
      "authorization.value, validAfter and validBefore must be decimal strings of a uint256.",
      payer,
    );
  }
  const { nonce } = fields;
  if (typeof nonce !== "string" || !/^0x[0-9a-fA-F]{64}$/.test(nonce))
    return invalid("authorization.nonce must be 0x and 64 hexadecimal digits.", payer);
  return {
    from: from.address,
    to: to.address,
    value,
    validAfter,
    validBefore,
    nonce: nonce.toLowerCase() as Hex,
  };
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";

/** An authorization must still be valid when it reaches a block; the protocol's minimum. */
const MIN_LIFETIME_SECONDS = 6n;

/**
 * Checks recipient, time window and value, in the reference implementation's order; undefined if all are right.
 * Called after the signature check.
 * Without a time the window is not checked, so a payment that was accepted in time keeps its result afterwards.
 */
export function checkTerms(
  payment: ExactPayment,
  nowSeconds: bigint | undefined,
): Refusal | undefined {
  const { payer, acceptedMismatch, authorization } = payment;
  if (authorization.to !== payment.payTo || acceptedMismatch === "payTo")
    return refuse("invalid_exact_evm_recipient_mismatch", payer);
  if (nowSeconds !== undefined) {
    if (authorization.validBefore < nowSeconds + MIN_LIFETIME_SECONDS)
      return refuse("invalid_exact_evm_payload_authorization_valid_before", payer);
    if (authorization.validAfter > nowSeconds)
      return refuse("invalid_exact_evm_payload_authorization_valid_after", payer);
  }
  if (authorization.value !== payment.amountAtomic || acceptedMismatch === "amount") {
    const reason =
      payment.version === 2
        ? "invalid_exact_evm_payload_authorization_value_mismatch"
        : "invalid_exact_evm_authorization_value";
    return refuse(reason, payer);
  }
  if (acceptedMismatch === "asset")
    return refuse("invalid_payload", payer, "accepted.asset differs from the requirements.");
  return undefined;
}

export function explainFailure(payment: ExactPayment, found: Diagnosis): Refusal {
  const { payer, network } = payment;
  if (found.used === undefined) return refuse("invalid_exact_evm_eip3009_not_supported", payer);
  if (found.used) return refuse("invalid_exact_evm_nonce_already_used", payer);
  if (payment.domainName !== network.usdc.name)
    return refuse("invalid_exact_evm_token_name_mismatch", payer);
  if (payment.domainVersion !== network.usdc.version)
    return refuse("invalid_exact_evm_token_version_mismatch", payer);
  if ((found.balanceAtomic ?? payment.amountAtomic) < payment.amountAtomic)
    return refuse("invalid_exact_evm_insufficient_balance", payer);
  if (found.revert === undefined)
    return refuse("invalid_exact_evm_transaction_simulation_failed", payer);
  // At the edge of the window, the newest block's time decides, not our clock.
  const { reason, message } = explainRevert(found.revert);
  const isOfTime = reason.includes("_valid_after") || reason === REASON_EXPIRED;
  return refuse(
    isOfTime ? reason : "invalid_exact_evm_transaction_simulation_failed",
    payer,
    message,
  );
}

/**
 * `extra` never changes what is signed; the domain comes from our own table. But if `extra` describes another
 * contract or transfer method, the entry is not a plain EIP-3009 transfer of this token (GatewayWalletBatched,
 * for example), and must not be signed.
 */
function whyNotPayable(extra: Fields, network: NetworkFacts): string | undefined {
  const { usdc, chainId } = network;
  const differs = (name: string, expected: string): boolean => {
    const given = extra[name];
    if (given === undefined || given === null) return false;
    return plainText(given)?.toLowerCase() !== expected.toLowerCase();
  };
  if (differs("name", usdc.name)) return `token name ${quoted(extra["name"])} is not ${usdc.name}`;
  if (differs("version", usdc.version)) return `token version is not ${usdc.version}`;
  if (differs("verifyingContract", usdc.address)) return "verifyingContract is not the token";
  if (differs("chainId", String(chainId))) return "chainId is not the network's";
  if (differs("decimals", String(USDC_DECIMALS))) return "decimals are not those of USDC";
  if (differs("assetTransferMethod", EXACT_EIP3009.transferMethod))
    return `transfer method ${quoted(extra["assetTransferMethod"])} is not supported`;
  return undefined;
}
