/** Creates a cashier, which charges for resources, from the options of a Fastify app or a tool server. */
import { HTTPFacilitatorClient, type FacilitatorClient } from "@x402/core/server";
import { Cashier, type CashierDeps } from "./charge.ts";
import { findAmong, PAYMENT_NETWORKS, type PaymentNetwork } from "./networks.ts";
import { EXACT_EIP3009, type PaywallScheme, UPTO } from "./scheme.ts";

export interface CashierOptions extends Omit<CashierDeps, "facilitator" | "networks" | "schemes"> {
  /**
   * Who verifies and settles: a URL, or a client of the protocol's library (with credentials, or in this
   * process).
   */
  facilitator: string | FacilitatorClient;
  /** CAIP-2 ids, or complete network descriptions; browsers pay on the first one. */
  networks: readonly (string | PaymentNetwork)[];
  /**
   * The accepted schemes, best first. Default: `exact` over EIP-3009, and `upto` for routes with a maximum.
   */
  schemes?: readonly PaywallScheme[] | undefined;
}

/** For use without a Fastify app; the Fastify plugin creates its cashier with this too. */
export function cashier({ facilitator, networks, schemes, ...options }: CashierOptions): Cashier {
  return new Cashier({
    ...options,
    facilitator:
      typeof facilitator === "string"
        ? new HTTPFacilitatorClient({ url: facilitator })
        : facilitator,
    networks: networks.map(networkFacts),
    schemes: schemes ?? [EXACT_EIP3009, UPTO],
  });
}

export function networkFacts(network: string | PaymentNetwork): PaymentNetwork {
  const facts = typeof network === "string" ? findAmong(network, PAYMENT_NETWORKS) : network;
  if (!facts) throw new Error(`the paywall does not know the network ${JSON.stringify(network)}`);
  return facts;
}
