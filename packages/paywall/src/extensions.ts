/** The protocol extensions in a paywall's terms, and which of them are forwarded to the facilitator. */
import type { PaymentPayload, PaymentRequired, PaymentRequirements } from "@x402/core/types";
import {
  declareEip2612GasSponsoringExtension,
  declareErc20ApprovalGasSponsoringExtension,
} from "@x402/extensions";
import { isOverPermit2 } from "./scheme.ts";
import { declareDiscoveryExtension } from "@x402/extensions/bazaar";

/** A facilitator that announces one of these pays the gas for the payer's allowance to Permit2. */
const SPONSORING: Record<string, () => Record<string, object>> = {
  eip2612GasSponsoring: declareEip2612GasSponsoringExtension,
  erc20ApprovalGasSponsoring: declareErc20ApprovalGasSponsoringExtension,
};

/** `announced`: the extensions that the facilitator announces. */
export function sponsoringFor(
  accepts: readonly PaymentRequirements[],
  announced: readonly string[],
): Record<string, unknown> {
  if (!accepts.some(isOverPermit2)) return {};
  const declared = Object.entries(SPONSORING)
    .filter(([name]) => announced.includes(name))
    .map(([, declare]) => declare());
  return Object.assign({}, ...declared) as Record<string, unknown>;
}

export const discovery = (example: unknown): Record<string, unknown> =>
  declareDiscoveryExtension(example === undefined ? {} : { output: { example } });

/**
 * The payload that is sent to the facilitator. The payer decides amount and signature, the seller decides
 * what is sold. So the resource and the extensions come from our terms; from the payer's extensions only its
 * allowance to Permit2 is forwarded, and only where the terms offered that.
 */
export function payloadForFacilitator(
  { x402Version, accepted, payload, extensions: sent = {} }: PaymentPayload,
  { resource, extensions: offered = {} }: PaymentRequired,
): PaymentPayload {
  const signed = Object.keys(SPONSORING)
    .filter((name) => name in offered && name in sent)
    .map((name) => [name, sent[name]] as const);
  const extensions = { ...offered, ...Object.fromEntries(signed) };
  return {
    x402Version,
    accepted,
    payload,
    resource,
    ...(Object.keys(extensions).length > 0 && { extensions }),
  };
}
