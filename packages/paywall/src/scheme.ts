import type { PaymentRequirements } from "@x402/core/types";
import type { PaymentNetwork } from "./networks.ts";

/** What of a payment scheme stands in the terms. */
export interface PaywallScheme {
  /** As the protocol names it in `scheme`. */
  readonly name: string;
  /** As the protocol names the way the asset moves. */
  readonly transferMethod: string;
  /** A maximum is signed, and what was used is charged: asked for where a route says `{ upTo }`, and only there. */
  readonly isMetered?: boolean;
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

const overPermit2: PaywallScheme["requirementExtra"] = ({ usdc }) => ({
  name: usdc.name,
  version: usdc.version,
  assetTransferMethod: "permit2",
});

/** The payer signs for x402's proxy of Permit2; its allowance to Permit2 can come with the payment, where that is sponsored. */
export const EXACT_PERMIT2: PaywallScheme = {
  name: "exact",
  transferMethod: "permit2",
  requirementExtra: overPermit2,
};

/** The payer signs a maximum over Permit2, for the one account of the facilitator that may charge it. */
export const UPTO: PaywallScheme = {
  name: "upto",
  transferMethod: "permit2",
  isMetered: true,
  requirementExtra: overPermit2,
};

/** Version 1 knows EIP-3009 alone, which needs no name there. */
export const isForVersion1 = ({ scheme, extra }: PaymentRequirements): boolean =>
  scheme === "exact" && (extra["assetTransferMethod"] ?? "eip3009") === "eip3009";

export const isOverPermit2 = ({ extra }: PaymentRequirements): boolean =>
  extra["assetTransferMethod"] === "permit2";
