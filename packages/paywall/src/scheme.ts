import type { PaymentNetwork } from "./networks.ts";

/** What of a payment scheme stands in the terms. */
export interface PaywallScheme {
  /** As the protocol names it in `scheme`. */
  readonly name: string;
  /** As the protocol names the way the asset moves. */
  readonly transferMethod: string;
  /** `extra` of a payment requirement. */
  requirementExtra(network: PaymentNetwork): Record<string, unknown>;
}

/** The payer signs a transfer of the token itself; the token's EIP-712 domain stands in the terms. */
export const EXACT_EIP3009: PaywallScheme = {
  name: "exact",
  transferMethod: "eip3009",
  /** `extra` of a payment requirement. */
  requirementExtra: ({ usdc }) => ({ name: usdc.name, version: usdc.version }),
};
