/** Stored documents, and the URLs that they name: quarantined until our own probe found them alive. */
import { newId } from "../../core/ids.ts";
import {
  atomicOrNull,
  databaseNow,
  decimalOf,
  secondsAfter,
  type Db,
  type PrismaClient,
} from "../../infra/db/prisma.ts";
import { cellOfCatalogue, dropFound, WELL_KNOWN_SOURCE } from "../listings/foreign.ts";
import { WELL_KNOWN } from "./well-known.ts";

export type DocumentKind = "well-known" | "catalogue";

export interface DueDocument {
  url: string;
  kind: DocumentKind;
  host: string;
  failures: number;
}

/** A URL that a document names. A catalogue also says what it costs. */
export interface NamedUrl {
  url: string;
  host: string;
  payTo?: string;
  network?: string;
  priceAtomic?: bigint;
}

/** The most URLs of one host from all catalogues together. */
const MOST_PER_HOST = 20;
/** New hosts of a minute. */
const MOST_NEW_DOCUMENTS = 100;
/** After this many failed reads in a row, days apart, a document counts as withdrawn. */
const FAILURES_UNTIL_WITHDRAWN = 12;

const foundIn = ({ kind, url }: { kind: DocumentKind; url: string }): string =>
  kind === "well-known" ? WELL_KNOWN_SOURCE : url;

/** The configured catalogues, and a document for each origin with a listing. What is in neither goes, with its entries. */
export async function syncDocuments(
  prisma: PrismaClient,
  catalogues: readonly string[],
): Promise<number> {
  const now = await databaseNow(prisma);
  await prisma.discoveryDocument.createMany({
    data: catalogues.map((url) => ({
      url,
      kind: "catalogue",
      host: new URL(url).host,
      nextReadAt: now,
      createdAt: now,
    })),
    skipDuplicates: true,
  });
  // SQL: the origin is part of a text column, and the anti-join keeps it one statement.
  await prisma.$executeRaw`
    INSERT INTO discovery_documents (url, kind, host)
    SELECT DISTINCT substring(url FROM '^https?://[^/?#]+') || ${WELL_KNOWN}, 'well-known', host
      FROM listings l
     WHERE source <> 'built-in' AND status <> 'paused' AND coalesce(found_in, ${WELL_KNOWN_SOURCE}) = ${WELL_KNOWN_SOURCE}
       AND NOT EXISTS (SELECT 1 FROM discovery_documents d
                        WHERE d.url = substring(l.url FROM '^https?://[^/?#]+') || ${WELL_KNOWN})
     LIMIT ${MOST_NEW_DOCUMENTS} ON CONFLICT DO NOTHING`;
  return removeUnwanted(prisma, catalogues);
}

async function removeUnwanted(prisma: PrismaClient, catalogues: readonly string[]) {
  const wanted = [...catalogues];
  // SQL: as above. A listing that only the document named does not keep it.
  const { count: removed } = await prisma.discoveryDocument.deleteMany({
    where: { kind: "catalogue", url: { notIn: wanted } },
  });
  await prisma.$executeRaw`
    DELETE FROM discovery_documents d
     WHERE kind = 'well-known' AND NOT EXISTS (
       SELECT 1 FROM listings l WHERE l.host = d.host AND l.source <> 'built-in' AND l.found_in IS NULL)`;
  // SQL: listings of documents that are gone.
  const dropped = await prisma.$executeRaw`
    DELETE FROM listings l
     WHERE found_in IS NOT NULL AND NOT EXISTS (
       SELECT 1 FROM discovery_documents d
        WHERE d.url = CASE WHEN l.found_in = ${WELL_KNOWN_SOURCE}
                           THEN substring(l.url FROM '^https?://[^/?#]+') || ${WELL_KNOWN}
                           ELSE l.found_in END)`;
  return removed + dropped;
}

/** Claims due documents, at most one of a host, and postpones their next read in the same statement. */
export async function claimDocuments(
  db: Db,
  options: { kind: DocumentKind; limit: number; leaseMs: number; exceptHosts: readonly string[] },
): Promise<DueDocument[]> {
  // SQL: DISTINCT ON within a locking read, and SKIP LOCKED.
  return db.$queryRaw<DueDocument[]>`
    UPDATE discovery_documents
       SET next_read_at = now() + ${options.leaseMs}::int * interval '1 millisecond'
     WHERE url IN (
       SELECT url FROM discovery_documents
        WHERE url IN (SELECT DISTINCT ON (host) url FROM discovery_documents
                       WHERE kind = ${options.kind} AND next_read_at <= now()
                         AND NOT host = ANY (${[...options.exceptHosts]}::text[])
                       ORDER BY host, next_read_at)
          AND next_read_at <= now()
        ORDER BY next_read_at LIMIT ${options.limit} FOR UPDATE SKIP LOCKED)
     RETURNING url, kind, host, failures`;
}

interface ReadChanges {
  added: number;
  changed: number;
  removed: number;
}

/** What a document names now: its other entries go, and those with other terms are probed anew before they are shown. */
export async function storeRead(
  prisma: PrismaClient,
  document: DueDocument,
  named: readonly NamedUrl[],
  nextReadInMs: number,
): Promise<ReadChanges> {
  return prisma.$transaction(async (tx) => {
    const isThere = await lockDocument(tx, document.url);
    if (!isThere) return { added: 0, changed: 0, removed: 0 };
    const documentUrl = document.url;
    const now = await databaseNow(tx);
    const before = await tx.discoveredUrl.findMany({ where: { documentUrl } });
    const known = new Map(before.map((row) => [row.url, row]));
    const wanted = new Map(named.map((entry) => [entry.url, entry]));
    const gone = before.filter(({ url }) => !wanted.has(url)).map(({ url }) => url);
    const changed = [...wanted.values()].filter((entry) => {
      const row = known.get(entry.url);
      return row !== undefined && !isSame(row, entry);
    });
    const fresh = [...wanted.values()].filter(({ url }) => !known.has(url));
    const isForeign = document.kind === "catalogue" && !cellOfCatalogue(documentUrl);
    const added = isForeign ? await withRoom(tx, documentUrl, fresh) : fresh;
    const replaced = [...gone, ...changed.map(({ url }) => url)];
    await tx.discoveredUrl.deleteMany({ where: { documentUrl, url: { in: replaced } } });
    await tx.discoveredUrl.createMany({
      data: [...changed, ...added].map(({ url, host, payTo, network, priceAtomic }) => ({
        id: newId("fnd"),
        documentUrl,
        url,
        host,
        nextTryAt: now,
        createdAt: now,
        payTo: payTo ?? null,
        network: network ?? null,
        price: priceAtomic === undefined ? null : decimalOf(priceAtomic),
      })),
    });
    await dropNamed(tx, document, replaced);
    await tx.discoveryDocument.update({
      where: { url: documentUrl },
      data: {
        failures: 0,
        reason: null,
        readAt: now,
        nextReadAt: secondsAfter(now, nextReadInMs / 1000),
      },
    });
    return { added: added.length, changed: changed.length, removed: gone.length };
  });
}

/** A read that failed changes nothing, until the document has been away for long. */
export async function storeFailure(
  prisma: PrismaClient,
  document: DueDocument,
  reason: string,
  nextReadInMs: number,
): Promise<void> {
  await prisma.$transaction(async (tx) => {
    if (!(await lockDocument(tx, document.url))) return;
    const now = await databaseNow(tx);
    const { failures } = await tx.discoveryDocument.update({
      where: { url: document.url },
      data: {
        failures: { increment: 1 },
        reason,
        nextReadAt: secondsAfter(now, nextReadInMs / 1000),
      },
    });
    if (failures < FAILURES_UNTIL_WITHDRAWN) return;
    const rows = await tx.discoveredUrl.findMany({ where: { documentUrl: document.url } });
    await tx.discoveredUrl.deleteMany({ where: { documentUrl: document.url } });
    await dropNamed(
      tx,
      document,
      rows.map(({ url }) => url),
    );
  });
}

async function lockDocument(tx: Db, url: string): Promise<boolean> {
  // SQL: a row lock, which Prisma does not have.
  const rows = await tx.$queryRaw<unknown[]>`
    SELECT 1 FROM discovery_documents WHERE url = ${url} FOR UPDATE`;
  return rows.length > 0;
}

const dropNamed = (tx: Db, document: DueDocument, urls: readonly string[]): Promise<number> =>
  dropFound(tx, foundIn(document), urls);

type StoredUrl = Awaited<ReturnType<Db["discoveredUrl"]["findMany"]>>[number];

const isSame = (row: StoredUrl, entry: NamedUrl): boolean =>
  row.payTo === (entry.payTo ?? null) &&
  row.network === (entry.network ?? null) &&
  atomicOrNull(row.price) === (entry.priceAtomic ?? null);

/** Several catalogues together cannot make us probe one host without end. */
async function withRoom(tx: Db, documentUrl: string, fresh: NamedUrl[]): Promise<NamedUrl[]> {
  const hosts = [...new Set(fresh.map(({ host }) => host))];
  const counts = await tx.discoveredUrl.groupBy({
    by: ["host"],
    where: { host: { in: hosts }, document: { kind: "catalogue" } },
    _count: true,
  });
  const used = new Map(counts.map(({ host, _count }) => [host, _count]));
  return fresh.filter(({ host }) => {
    const count = (used.get(host) ?? 0) + 1;
    used.set(host, count);
    return count <= MOST_PER_HOST;
  });
}

export interface Candidate extends NamedUrl {
  id: string;
  documentUrl: string;
  kind: DocumentKind;
  tries: number;
}

/** Claimed like nominations. */
export async function claimCandidates(
  db: Db,
  options: { limit: number; leaseMs: number; exceptHosts: readonly string[] },
): Promise<Candidate[]> {
  // SQL: DISTINCT ON within a locking read, and SKIP LOCKED.
  const claimed = await db.$queryRaw<{ id: string }[]>`
    UPDATE discovered_urls SET next_try_at = now() + ${options.leaseMs}::int * interval '1 millisecond',
           tries = tries + 1
     WHERE id IN (
       SELECT id FROM discovered_urls
        WHERE id IN (SELECT DISTINCT ON (host) id FROM discovered_urls
                      WHERE status = 'waiting' AND next_try_at <= now()
                        AND NOT host = ANY (${[...options.exceptHosts]}::text[])
                      ORDER BY host, next_try_at)
          AND status = 'waiting' AND next_try_at <= now()
        ORDER BY tries, next_try_at LIMIT ${options.limit} FOR UPDATE SKIP LOCKED)
     RETURNING id`;
  const rows = await db.discoveredUrl.findMany({
    where: { id: { in: claimed.map(({ id }) => id) } },
    include: { document: { select: { kind: true } } },
  });
  return rows.map(({ price, payTo, network, document, ...row }) => ({
    ...row,
    kind: document.kind as DocumentKind,
    ...(payTo !== null &&
      network !== null &&
      price !== null && { payTo, network, priceAtomic: atomicOrNull(price) ?? 0n }),
  }));
}

export const sourceOfCandidate = ({ kind, documentUrl }: Candidate): string =>
  foundIn({ kind, url: documentUrl });

/** How long a refused or dropped URL is not probed again. */
const REFUSED_SECONDS = 24 * 3600;

export async function refuseCandidate(db: Db, id: string, reason: string): Promise<void> {
  const nextTryAt = secondsAfter(await databaseNow(db), REFUSED_SECONDS);
  await db.discoveredUrl.updateMany({
    where: { id },
    data: { status: "refused", reason, nextTryAt },
  });
}

export async function postponeCandidate(db: Db, id: string, seconds: number): Promise<void> {
  const nextTryAt = secondsAfter(await databaseNow(db), seconds);
  await db.discoveredUrl.updateMany({ where: { id }, data: { nextTryAt } });
}

/** A listing that was dropped waits like a refused URL; what waited for a day is probed again. */
export async function reviveCandidates(prisma: PrismaClient): Promise<void> {
  // SQL: an anti-join by two columns.
  await prisma.$executeRaw`
    UPDATE discovered_urls u
       SET status = 'refused', reason = 'Its listing was dropped.',
           next_try_at = now() + ${REFUSED_SECONDS}::int * interval '1 second'
      FROM discovery_documents d
     WHERE u.status = 'listed' AND d.url = u.document_url AND NOT EXISTS (
       SELECT 1 FROM listings l
        WHERE l.url = u.url AND l.found_in = CASE d.kind WHEN 'well-known' THEN 'well-known' ELSE d.url END)`;
  const now = await databaseNow(prisma);
  await prisma.discoveredUrl.updateMany({
    where: { status: "refused", nextTryAt: { lte: now } },
    data: { status: "waiting", reason: null, tries: 0, nextTryAt: now },
  });
}
