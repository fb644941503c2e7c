/**
 * A seller that settles here may announce its endpoint in the payment's `bazaar` extension. The
 * payer relays that text, so nothing in it is proven but the terms that were just paid: the listing
 * starts unproven (`not_probed`) and the next probe of the live endpoint decides.
 */
import type { PaymentPayload, PaymentRequirements } from "@x402/core/types";
import { extractDiscoveryInfo } from "@x402/extensions/bazaar";
import { parseAtomic } from "../../core/money.ts";
import { type NetworkFacts, findNetwork } from "../../core/networks.ts";
import {
  decimalOf,
  databaseNow,
  jsonOf,
  jsonOrNull,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";
import { type ListingMethod, type ListingRow, matches, rowOf } from "../listings/store.ts";

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

/** Listings that sellers announce by settling here, and the catalogue the protocol's Bazaar shows. */

/** One payee cannot fill the catalogue. */
const MAX_PER_PAYEE = 50;

/**
 * New: kept, unproven, due for a probe at once. Known: its price and extension follow what was paid;
 * the pinned ceiling and payee do not move.
 */
export async function announceListing(db: Db, row: Announcement & { id: string }): Promise<void> {
  const { url, method, payTo, network } = row;
  const listed = await db.listing.findFirst({
    where: { url, method, payTo, network, source: { not: "bazaar" } },
    select: { id: true },
  });
  if (listed !== null) return;
  const others = await db.listing.count({
    where: { payTo, source: "bazaar", NOT: { url, method } },
  });
  if (others >= MAX_PER_PAYEE) return;
  const now = await databaseNow(db);
  const announced = {
    name: row.name,
    description: row.description,
    extensions: jsonOrNull(row.extensions),
    mimeType: row.mimeType,
  };
  // Two that announce the same endpoint at once make one row: the second insert does nothing.
  const { count } = await db.listing.createMany({
    data: [
      {
        ...announced,
        id: row.id,
        source: "bazaar",
        category: "bazaar",
        url,
        method,
        host: row.host,
        payTo,
        asset: row.asset,
        network,
        price: decimalOf(row.priceAtomic),
        priceCeiling: decimalOf(row.priceAtomic),
        status: "failing",
        flag: "not_probed",
        statusReason: "Announced by its seller; not probed yet.",
        x402Version: row.x402Version,
        requirement: jsonOf(row.requirement),
        nextProbeAt: now,
      },
    ],
    skipDuplicates: true,
  });
  if (count === 1) return;
  await db.listing.updateMany({
    where: { url, method, payTo, network, source: "bazaar" },
    data: { ...announced, updatedAt: now },
  });
}

/** An announced endpoint that never answered again is forgotten; it may be announced anew. */
const FAILURES_UNTIL_FORGOTTEN = 20;

export async function forgetDeadAnnouncements(db: Db): Promise<number> {
  const { count } = await db.listing.deleteMany({
    where: { source: "bazaar", status: "failing", failures: { gte: FAILURES_UNTIL_FORGOTTEN } },
  });
  return count;
}

export interface CatalogueFilter {
  query?: string | undefined;
  payTo?: string | undefined;
  scheme?: string | undefined;
  network?: string | undefined;
  extension?: string | undefined;
  limit: number;
  offset: number;
}

/** Freshly announced ones are shown: their payment has just settled here. Failed probes hide a listing. */
const SHOWN: Prisma.ListingWhereInput = { OR: [{ status: "active" }, { flag: "not_probed" }] };

export async function listCatalogue(
  db: Db,
  filter: CatalogueFilter,
): Promise<{ rows: ListingRow[]; total: number }> {
  const { payTo, scheme, network, extension } = filter;
  const where: Prisma.ListingWhereInput = {
    AND: [
      SHOWN,
      matches(filter.query),
      payTo === undefined ? {} : { payTo: payTo.toLowerCase() },
      network === undefined ? {} : { network },
      scheme === undefined ? {} : { requirement: { path: ["scheme"], equals: scheme } },
      extension === undefined ? {} : { extensions: { path: [extension], not: jsonOrNull(null) } },
    ],
  };
  const [total, rows] = await Promise.all([
    db.listing.count({ where }),
    db.listing.findMany({
      where,
      orderBy: [{ createdAt: "desc" }, { id: "desc" }],
      take: filter.limit,
      skip: filter.offset,
    }),
  ]);
  return { rows: rows.map(rowOf), total };
}
