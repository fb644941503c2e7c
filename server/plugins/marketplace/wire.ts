/** Listings in API form: parses an owner's input, and formats listings for responses. */
import { ApiError } from "../../errors.ts";
import { plainWords } from "../../core/foreign-text.ts";
import { parsePayable, formatAtomic } from "../../core/money.ts";
import { cellIn, sourceOf } from "../listings/foreign.ts";
import { LONGEST } from "../listings/listing-text.ts";
import { isMaximum } from "../../schemes/index.ts";
import { getAddress } from "viem";
import type { ListingRow } from "../listings/store.ts";
import type { DiscoveryItemWire, ListingSummary, ListingWire } from "../../schemas/listings.ts";

/** An absolute http(s) URL without credentials and fragment, in the form to store. */
export function readListingUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || (url.protocol !== "https:" && url.protocol !== "http:"))
    throw invalid("body.url", "must be an absolute http(s) URL");
  if (url.username !== "" || url.password !== "")
    throw invalid("body.url", "must not contain credentials");
  url.hash = "";
  return url;
}

/** A name without visible characters is refused. */
export function readName(text: string): string {
  const name = plainWords(text, LONGEST.name);
  if (name === "") throw invalid("body.name", "has no readable text");
  return name;
}

/** The owner's price ceiling; by default the current price. */
export function readCeiling(text: string | undefined, priceAtomic: bigint): bigint {
  if (text === undefined) return priceAtomic;
  const parsed = parsePayable(text);
  if (!parsed.ok)
    throw new ApiError("invalid_amount", {
      detail: `body.maxPrice ${parsed.reason}`,
      extra: { errors: [{ path: "body.maxPrice", message: parsed.reason }] },
    });
  if (parsed.atomic < priceAtomic)
    throw invalid("body.maxPrice", "is below the current price of the endpoint");
  return parsed.atomic;
}

export function readMaxPriceFilter(text: string | undefined): bigint | undefined {
  if (text === undefined) return undefined;
  const parsed = parsePayable(text);
  if (!parsed.ok)
    throw new ApiError("invalid_amount", {
      detail: `query.maxPrice ${parsed.reason}`,
      extra: { errors: [{ path: "query.maxPrice", message: parsed.reason }] },
    });
  return parsed.atomic;
}

function invalid(path: string, message: string): ApiError {
  return new ApiError("validation_failed", {
    detail: `${path} ${message}`,
    extra: { errors: [{ path, message }] },
  });
}

/** Our own REST format. */
export function toListing(row: ListingRow, viewerId: string | undefined): ListingWire {
  return {
    id: row.id,
    mine: row.ownerId !== null && row.ownerId === viewerId,
    source: sourceOf(row),
    ...cellIn(row),
    url: row.url,
    host: row.host,
    method: row.method,
    network: row.network,
    asset: getAddress(row.asset),
    payTo: getAddress(row.payTo),
    price: formatAtomic(row.priceAtomic),
    ...(isMaximum(row.requirement) && { maximum: true as const }),
    maxPrice: formatAtomic(row.priceCeilingAtomic),
    status: row.status,
    flag: row.flag,
    statusReason: row.statusReason,
    thirdParty: {
      untrusted: true,
      name: row.name,
      description: row.description,
      category: row.category,
      sample: row.sample,
      mimeType: row.mimeType,
      tags: row.tags,
    },
    x402Version: row.x402Version,
    uses: Number(row.uses),
    payers: row.payers,
    similarTo: row.similarTo,
    lastProbedAt: row.lastProbedAt?.toISOString() ?? null,
    createdAt: row.createdAt.toISOString(),
    updatedAt: row.updatedAt.toISOString(),
  };
}

/** What an agent needs to choose. */
export function shortListing(listing: ListingWire): ListingSummary {
  const { id, url, method, network, price, maximum, uses, payers } = listing;
  const { similarTo, thirdParty, source, cell } = listing;
  const { untrusted, name, description, category } = thirdParty;
  return {
    id,
    // Nobody signed for it here, which an agent should know.
    ...(typeof source === "object" && { source }),
    ...(cell !== undefined && { source, cell }),
    url,
    method,
    network,
    price,
    ...(maximum && { maximum }),
    uses,
    payers,
    ...(similarTo === null ? {} : { similarTo }),
    thirdParty: { untrusted, name, description, category },
  };
}

/** The protocol's Bazaar format. */
export function toDiscoveryItem(row: ListingRow): DiscoveryItemWire {
  const source = sourceOf(row);
  return {
    resource: row.url,
    type: "http",
    x402Version: row.x402Version,
    accepts: [row.requirement],
    lastUpdated: row.updatedAt.toISOString(),
    description: row.description,
    ...(row.mimeType === null ? {} : { mimeType: row.mimeType }),
    serviceName: row.name,
    tags: [row.category, ...row.tags],
    ...(row.extensions === null ? {} : { extensions: row.extensions }),
    metadata: {
      listingId: row.id,
      name: row.name,
      category: row.category,
      method: row.method,
      status: row.status,
      uses: Number(row.uses),
      ...(typeof source === "object" && { source }),
      ...cellIn(row),
    },
  };
}
