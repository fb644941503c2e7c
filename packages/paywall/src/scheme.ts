// A payment scheme's part of the terms: `exact` over EIP-3009 or Permit2, and `upto` over Permit2.
import type { PaymentRequirements } from "@x402/core/types";
import type { PaymentNetwork } from "./networks.ts";

/** What the terms must contain for a payment scheme. */
export interface PaywallScheme {
  /** The protocol's name for it, in `scheme`. */
  readonly name: string;
  /** The protocol's name for how the asset moves. */
  readonly transferMethod: string;
  /**
   * The payer signs a maximum and is charged for what was used. Offered on routes with `{ upTo }`, and only
   * there.
   */
  readonly isMetered?: boolean;
  /** `extra` of a payment requirement. */
  requirementExtra(network: PaymentNetwork): Record<string, unknown>;
  /** More of it, by what the facilitator announces. Undefined: payers lack something, so the scheme is not offered. */
  readonly announcedExtra?: (
    requirements: Pick<PaymentRequirements, "amount">,
    announced: Record<string, unknown>,
  ) => Record<string, unknown> | undefined;
}

/** The payer signs a transfer of the token itself; the terms contain the token's EIP-712 domain. */
export const EXACT_EIP3009: PaywallScheme = {
  name: "exact",
  transferMethod: "eip3009",
  requirementExtra: ({ usdc }) => ({ name: usdc.name, version: usdc.version }),
};

const overPermit2: PaywallScheme["requirementExtra"] = ({ usdc }) => ({
  name: usdc.name,
  version: usdc.version,
  assetTransferMethod: "permit2",
});

/**
 * The payer signs for x402's Permit2 proxy. Its allowance to Permit2 can come with the payment, where the
 * facilitator sponsors that.
 */
export const EXACT_PERMIT2: PaywallScheme = {
  name: "exact",
  transferMethod: "permit2",
  requirementExtra: overPermit2,
};

/** The payer signs a maximum over Permit2, which only the named account of the facilitator may charge. */
export const UPTO: PaywallScheme = {
  name: "upto",
  transferMethod: "permit2",
  isMetered: true,
  requirementExtra: overPermit2,
};

/** Version 1 supports EIP-3009 only, and needs no name for it. */
export const isForVersion1 = ({ scheme, extra }: PaymentRequirements): boolean =>
  scheme === "exact" && (extra["assetTransferMethod"] ?? "eip3009") === "eip3009";

export const isOverPermit2 = ({ extra }: PaymentRequirements): boolean =>
  extra["assetTransferMethod"] === "permit2";
