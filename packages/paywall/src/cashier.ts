/** Whoever takes the money, as an app or a tool server is told to make one. */
import { HTTPFacilitatorClient, type FacilitatorClient } from "@x402/core/server";
import { Cashier, type CashierDeps } from "./charge.ts";
import { findAmong, PAYMENT_NETWORKS, type PaymentNetwork } from "./networks.ts";
import { EXACT_EIP3009, type PaywallScheme, UPTO } from "./scheme.ts";

export interface CashierOptions extends Omit<CashierDeps, "facilitator" | "networks" | "schemes"> {
  /** Who verifies and settles: its URL, or a client of the protocol's library (with credentials, or in this process). */
  facilitator: string | FacilitatorClient;
  /** CAIP-2 ids, or the facts of networks; the first is what a browser pays on. */
  networks: readonly (string | PaymentNetwork)[];
  /** How may be paid, best first: `exact` over EIP-3009, and `upto` for what has a maximum, unless said. */
  schemes?: readonly PaywallScheme[] | undefined;
}

/** Where there is no Fastify app to register the paywall with; the paywall makes its own so. */
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
