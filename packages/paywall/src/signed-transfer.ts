/** What a payment over EIP-3009 or Permit2 signs: its nonce can be used once, so it cannot be charged twice. */
import type { PaymentPayload, PaymentRequirements } from "@x402/core/types";
import type { ExpectedTransfer } from "./chain-proof.ts";
import { isRecord } from "./foreign-json.ts";
import { EXACT_EIP3009, EXACT_PERMIT2, UPTO } from "./scheme.ts";

export interface SignedTransfer {
  /** Names the payment, whatever else its payload contains. */
  key: string;
  from: string;
  validUntilMs: number;
  /** Over EIP-3009, where the chain's events name the nonce. */
  transfer?: ExpectedTransfer;
}

const ADDRESS = /^0x[0-9a-fA-F]{40}$/;
const NONCE = /^0x[0-9a-fA-F]{64}$/;
const NUMBER = /^(0|[1-9][0-9]{0,77})$/;
const EVM = /^eip155:[0-9]{1,18}$/;

/** Undefined for every other kind of payment. */
export function signedTransferIn(
  { payload }: PaymentPayload,
  requirements: PaymentRequirements,
): SignedTransfer | undefined {
  const { scheme, network, extra } = requirements;
  if (!EVM.test(network) || !isRecord(payload)) return undefined;
  // Circle's Gateway collects signatures for a contract of its own, which has no such nonce.
  if (extra?.["verifyingContract"] !== undefined || extra?.["name"] === "GatewayWalletBatched")
    return undefined;
  const { authorization, permit2Authorization } = payload;
  if (scheme === EXACT_EIP3009.name && isRecord(authorization))
    return overEip3009(authorization, requirements);
  const isOverPermit2 = [EXACT_PERMIT2, UPTO].some(({ name }) => name === scheme);
  if (isOverPermit2 && isRecord(permit2Authorization))
    return overPermit2(permit2Authorization, requirements);
  return undefined;
}

function overEip3009(
  { from, to, value, nonce, validBefore }: Record<string, unknown>,
  { network, asset, payTo, amount }: PaymentRequirements,
): SignedTransfer | undefined {
  if (!isText(from, ADDRESS) || !isText(to, ADDRESS) || !isText(nonce, NONCE)) return undefined;
  if (!isText(value, NUMBER) || !isText(validBefore, NUMBER)) return undefined;
  const validBeforeSeconds = Number(validBefore);
  const isTheSale = to.toLowerCase() === payTo.toLowerCase() && value === amount;
  return {
    key: [network, asset, from, nonce].join(" ").toLowerCase(),
    from,
    validUntilMs: validBeforeSeconds * 1_000,
    ...(isTheSale && { transfer: { network, asset, from, to, value, nonce, validBeforeSeconds } }),
  };
}

/** Permit2's nonces are one row for all tokens. */
function overPermit2(
  { from, nonce, deadline }: Record<string, unknown>,
  { network }: PaymentRequirements,
): SignedTransfer | undefined {
  if (!isText(from, ADDRESS) || !isText(nonce, NUMBER) || !isText(deadline, NUMBER))
    return undefined;
  const key = [network, EXACT_PERMIT2.transferMethod, from, nonce].join(" ").toLowerCase();
  return { key, from, validUntilMs: Number(deadline) * 1_000 };
}

const isText = (value: unknown, form: RegExp): value is string =>
  typeof value === "string" && form.test(value);
