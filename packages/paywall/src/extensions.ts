/** The protocol's extensions that stand in a paywall's terms, and what of them goes on to the facilitator. */
import type { PaymentPayload, PaymentRequired, PaymentRequirements } from "@x402/core/types";
import {
  declareEip2612GasSponsoringExtension,
  declareErc20ApprovalGasSponsoringExtension,
} from "@x402/extensions";
import { isOverPermit2 } from "./scheme.ts";
import { declareDiscoveryExtension } from "@x402/extensions/bazaar";

/** A facilitator that announces one of these pays the gas of a payer's allowance to Permit2. */
const SPONSORING: Record<string, () => Record<string, object>> = {
  eip2612GasSponsoring: declareEip2612GasSponsoringExtension,
  erc20ApprovalGasSponsoring: declareErc20ApprovalGasSponsoringExtension,
};

/** `announced` by the facilitator. */
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
 * What is paid and by whom is the payer's word; what is sold is ours. So of the extensions of whoever shows the proof
 * only its own allowance to Permit2 goes on, where that was offered.
 */
export function asSold(
  { x402Version, accepted, payload, extensions: shown = {} }: PaymentPayload,
  { resource, extensions: offered = {} }: PaymentRequired,
): PaymentPayload {
  const signed = Object.keys(SPONSORING)
    .filter((name) => name in offered && name in shown)
    .map((name) => [name, shown[name]] as const);
  const extensions = { ...offered, ...Object.fromEntries(signed) };
  return {
    x402Version,
    accepted,
    payload,
    resource,
    ...(Object.keys(extensions).length > 0 && { extensions }),
  };
}
