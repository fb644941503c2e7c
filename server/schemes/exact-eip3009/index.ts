/** Scheme `exact` over EIP-3009: the payer signs a transfer of the token itself, and anyone may relay it. */
import { bytesToHex, getAddress, type Hex } from "viem";
import { uintOf } from "../../core/abi.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { parseEcdsa, recoverSigner } from "../../core/curve.ts";
import { tokenDomainOf } from "../../core/networks.ts";
import type { Scheme, TransferPlan } from "../scheme.ts";
import { unwrapSignature } from "../wallet-signature.ts";
import {
  authorizationStateCalldata,
  cancelCalldata,
  isKeySignature,
  transferCalldata,
} from "./onchain.ts";
import { cancelDigest, transferDigest } from "./onchain.ts";
import { endFilter, fateIn, isUse } from "./onchain.ts";
import { TRANSFER_METHOD, whyNotPayable } from "./payment.ts";
import { readExactPayment, type ExactPayment } from "./payment.ts";
import { explainRevert, REASON_EXPIRED, REASON_USED } from "./onchain.ts";
import { checkTerms, explainFailure } from "./payment.ts";

export const exactEip3009: Scheme<ExactPayment> = {
  name: "exact",
  transferMethod: TRANSFER_METHOD,

  read: (parts, networks) => readExactPayment(exactEip3009, parts, networks),
  examine,
  checkTerms,
  explainFailure,

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
  fateIn,
  endFilter,
  isUse,
  explainRevert,
  reasonUsed: REASON_USED,
  reasonExpired: REASON_EXPIRED,

  transferDigest: (network, authorization) => transferDigest(tokenDomainOf(network), authorization),
  cancelDigest,
  whyNotPayable,
  proofPayload,
  requirementExtra: ({ usdc }) => ({ name: usdc.name, version: usdc.version }),
};

/** In this process. The domain is the one the requirements name: a wrong one is told apart later. */
function examine(payment: ExactPayment): { digest: Hex; ecdsa: Hex | undefined } {
  const { authorization, domainName, domainVersion } = payment;
  const domain = {
    name: domainName,
    version: domainVersion,
    chainId: authorization.chainId,
    verifyingContract: authorization.asset,
  };
  const digest = transferDigest(domain, authorization);
  const signature = parseEcdsa(payment.signature);
  const isPayers =
    signature !== undefined && recoverSigner(digest, signature) === authorization.from;
  return { digest: bytesToHex(digest), ecdsa: isPayers ? signature.hex : undefined };
}

/**
 * A wallet that does not exist yet signs in an ERC-6492 envelope, which names the factory call that makes
 * it. The facilitator lets only factories through that the operator allows.
 */
function planTransfer(authorization: SignedAuthorization): TransferPlan {
  const { asset, signature } = authorization;
  const { inner, deployment } = unwrapSignature(signature) ?? {
    inner: signature,
    deployment: undefined,
  };
  const transfer = { target: asset, data: transferCalldata(authorization, inner) };
  return {
    calls: deployment
      ? [{ target: deployment.factory, data: deployment.data }, transfer]
      : [transfer],
    isPlainKey: deployment === undefined && isKeySignature(inner),
    deployment,
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
