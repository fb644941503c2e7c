/**
 * The body of an unpaid answer. Version 2 leaves it free (its terms are in the header), so it speaks
 * version 1, with version 2's names beside: whoever reads only bodies finds the same terms. Where
 * version 1 has no name for a network the CAIP-2 id stands, which a version 1 client refuses.
 */
import type { PaymentRequired } from "@x402/core/types";
import { findNetwork } from "../networks.ts";

export function v1Body({ accepts, error, resource }: PaymentRequired): object {
  return {
    x402Version: 1,
    error: error ?? "Payment required",
    accepts: accepts.map((entry) => ({
      scheme: entry.scheme,
      network: findNetwork(entry.network)?.v1Name ?? entry.network,
      maxAmountRequired: entry.amount,
      amount: entry.amount,
      resource: resource.url,
      description: resource.description ?? "",
      mimeType: resource.mimeType ?? "",
      payTo: entry.payTo,
      maxTimeoutSeconds: entry.maxTimeoutSeconds,
      asset: entry.asset,
      extra: entry.extra,
    })),
    resource,
    help: "Version 2 clients: the terms are in the PAYMENT-REQUIRED header; send the proof in PAYMENT-SIGNATURE.",
  };
}
