/** Our own paid endpoints, listed from the first start at the terms they ask. */
import type { PaymentRequired } from "@x402/core/types";
import type { ListingMethod, NewListingRow } from "../listings/store.ts";
import { newId } from "../../core/ids.ts";
import { parseAtomic } from "../../core/money.ts";

/** An endpoint of our own, listed from the first start. */
export interface BuiltIn {
  key: string;
  name: string;
  description: string;
  category: string;
  url: string;
  method: ListingMethod;
  sample: string;
  terms: () => Promise<PaymentRequired>;
}

export function builtInRow(builtIn: BuiltIn, required: PaymentRequired): NewListingRow | undefined {
  const [requirement] = required.accepts;
  const priceAtomic = parseAtomic(requirement?.amount);
  if (!requirement || priceAtomic === undefined) return undefined;
  return {
    id: newId("lst"),
    source: "built-in",
    ownerId: null,
    builtInKey: builtIn.key,
    name: builtIn.name,
    description: builtIn.description,
    category: builtIn.category,
    url: builtIn.url,
    method: builtIn.method,
    host: new URL(builtIn.url).host,
    payTo: requirement.payTo.toLowerCase(),
    asset: requirement.asset.toLowerCase(),
    network: requirement.network,
    priceAtomic,
    priceCeilingAtomic: priceAtomic,
    status: "active",
    flag: null,
    statusReason: null,
    x402Version: required.x402Version,
    requirement,
    extensions: required.extensions ?? null,
    mimeType: required.resource.mimeType ?? null,
    sample: builtIn.sample,
    probedAt: new Date(),
    nextProbeInMs: 0,
  };
}
