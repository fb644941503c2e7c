/** Listings as the world sees them: our own REST shape, and the protocol's Bazaar shape. */
import { getAddress } from "viem";
import type { ListingRow } from "../listings/store.ts";
import type { DiscoveryItemWire, ListingWire } from "../../schemas/listings.ts";
import { formatAtomic } from "../../core/money.ts";

export function toListing(row: ListingRow, viewerId: string | undefined): ListingWire {
  return {
    id: row.id,
    mine: row.ownerId !== null && row.ownerId === viewerId,
    source: row.source,
    name: row.name,
    description: row.description,
    category: row.category,
    url: row.url,
    host: row.host,
    method: row.method,
    network: row.network,
    asset: getAddress(row.asset),
    payTo: getAddress(row.payTo),
    price: formatAtomic(row.priceAtomic),
    maxPrice: formatAtomic(row.priceCeilingAtomic),
    status: row.status,
    flag: row.flag,
    statusReason: row.statusReason,
    sample: row.sample,
    mimeType: row.mimeType,
    x402Version: row.x402Version,
    uses: Number(row.uses),
    lastProbedAt: row.lastProbedAt?.toISOString() ?? null,
    createdAt: row.createdAt.toISOString(),
    updatedAt: row.updatedAt.toISOString(),
  };
}

export function toDiscoveryItem(row: ListingRow): DiscoveryItemWire {
  return {
    resource: row.url,
    type: "http",
    x402Version: row.x402Version,
    accepts: [row.requirement],
    lastUpdated: row.updatedAt.toISOString(),
    description: row.description,
    ...(row.mimeType === null ? {} : { mimeType: row.mimeType }),
    serviceName: row.name,
    tags: [row.category],
    ...(row.extensions === null ? {} : { extensions: row.extensions }),
    metadata: {
      listingId: row.id,
      name: row.name,
      category: row.category,
      method: row.method,
      status: row.status,
      uses: Number(row.uses),
    },
  };
}
