/**
 * A seller that settles here may announce its endpoint in the payment's `bazaar` extension. The
 * payer relays that text, so nothing in it is proven but the terms that were just paid: the listing
 * starts unproven (`not_probed`) and the next probe of the live endpoint decides.
 */
import { extractDiscoveryInfo } from "@x402/extensions/bazaar";
import type { PaymentPayload, PaymentRequirements } from "@x402/core/types";
import type { ListingMethod } from "../listings/store.ts";
import { parseAtomic } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";

export interface Announcement {
  url: string;
  host: string;
  method: ListingMethod;
  name: string;
  description: string;
  mimeType: string | null;
  tags: string[];
  payTo: string;
  asset: string;
  network: string;
  priceAtomic: bigint;
  x402Version: number;
  requirement: object;
  extensions: object | null;
}

type Requirements = PaymentRequirements & { maxAmountRequired?: string };
const METHODS: readonly string[] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const MAX_STORED_BYTES = 32 * 1024;

/** What a settle request announces, or undefined: nothing, nothing usable, or too much. */
export function readAnnouncement(
  body: unknown,
  networks: readonly NetworkFacts[],
): Announcement | undefined {
  const request = body as { paymentPayload: PaymentPayload; paymentRequirements: Requirements };
  const { paymentPayload: payload, paymentRequirements: requirements } = request;
  let found: ReturnType<typeof extractDiscoveryInfo>;
  try {
    // Without its validation: that compiles a stranger's JSON schema into code in our process.
    found = extractDiscoveryInfo(payload, requirements, false);
  } catch {
    return undefined; // Not a URL, or not the shape of an announcement.
  }
  // Templates name many endpoints at once, tools are not fetched over plain HTTP: neither can be probed.
  if (!found || !("method" in found) || found.routeTemplate !== undefined) return undefined;
  const { method: announced = "GET" }: { method?: unknown } = found;
  const method = typeof announced === "string" ? announced.toUpperCase() : "";
  const url = URL.canParse(found.resourceUrl) ? new URL(found.resourceUrl) : undefined;
  const network = findNetwork(requirements.network, networks);
  const priceAtomic = parseAtomic(requirements.amount ?? requirements.maxAmountRequired);
  if (!METHODS.includes(method) || !url || !/^https?:$/.test(url.protocol)) return undefined;
  if (url.href.length > 2048 || url.username !== "" || !network || !priceAtomic) return undefined;
  const bazaar = found.extensions?.["bazaar"];
  const extensions = bazaar === undefined ? null : { bazaar };
  if (Buffer.byteLength(JSON.stringify([extensions, requirements])) > MAX_STORED_BYTES)
    return undefined;
  return {
    url: url.href,
    host: url.host,
    method: method as ListingMethod,
    name: clean(found.serviceName ?? "", 80) || clean(`${url.host}${url.pathname}`, 80),
    description: clean(found.description ?? "", 500),
    mimeType: clean(found.mimeType ?? "", 100) || null,
    tags: found.tags ?? [],
    payTo: requirements.payTo.toLowerCase(),
    asset: requirements.asset.toLowerCase(),
    network: network.id,
    priceAtomic,
    x402Version: found.x402Version,
    requirement: requirements,
    extensions,
  };
}

/** Control characters out, so that a listing is one line of plain text everywhere. */
function clean(text: unknown, maxLength: number): string {
  if (typeof text !== "string") return "";
  return text
    .replaceAll(/[\p{Cc}\p{Cf}]+/gu, " ")
    .trim()
    .slice(0, maxLength);
}
