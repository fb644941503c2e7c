/**
 * The fetch ledger in the database: each request sent on an agent's behalf, and how many bytes came back and
 * are stored.
 */
import { newId } from "../../core/ids.ts";
import type { PageRequest } from "../../core/paging.ts";
import {
  databaseNow,
  hoursBefore,
  placeOf,
  readKeyset,
  secondsAfter,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";

export type FetchRow = Prisma.FetchGetPayload<object>;

export interface FetchStart {
  agentId: string;
  apiKeyId: string | null;
  requestId: string | null;
  kind: "fetch" | "quote";
  method: string;
  url: URL;
  listingId: string | undefined;
}

export interface FetchEnd {
  outcome: "free" | "paid" | "quoted" | "refused" | "failed";
  code: string | null;
  status: number | null;
  bytes: number;
  keptBytes: number;
  paymentId: string | null;
  /** Access granted for an earlier payment, by the wallet's signature (sign-in-with-x). */
  signedIn?: boolean;
}

/** Long and unlike a word, as keys and tokens in paths are. */
const LIKE_A_SECRET = /^(?=.*\d)[\w.:~%+=-]{20,}$|^.{65,}$/;

/** The origin and path without possible secrets: no query, and no segment that looks like a key. */
export function placeForLedger({ origin, pathname }: URL): { origin: string; path: string } {
  const path = pathname
    .split("/")
    .map((segment) => (LIKE_A_SECRET.test(segment) ? "***" : segment))
    .join("/");
  return { origin: origin.slice(0, 300), path: path.slice(0, 512) };
}

export async function beginFetch(db: Db, { url, ...facts }: FetchStart): Promise<string> {
  const id = newId("fet");
  const listingId = facts.listingId ?? null;
  await db.fetch.create({ data: { ...facts, ...placeForLedger(url), id, listingId } });
  return id;
}

export async function endFetch(
  db: Db,
  key: { agentId: string; id: string },
  end: FetchEnd,
): Promise<void> {
  const endedAt = await databaseNow(db);
  await db.fetch.updateMany({ where: key, data: { ...end, endedAt } });
}

/**
 * The stored bytes of an agent's responses of the last 24 hours, and the time until the oldest no longer
 * counts.
 */
export async function keptLastDay(
  db: Db,
  agentId: string,
): Promise<{ bytes: number; releaseInSeconds: number }> {
  const now = await databaseNow(db);
  const { _sum, _min } = await db.fetch.aggregate({
    where: { agentId, keptBytes: { gt: 0 }, createdAt: { gt: hoursBefore(now, 24) } },
    _sum: { keptBytes: true },
    _min: { createdAt: true },
  });
  const releasedAt = secondsAfter(_min.createdAt ?? now, 24 * 3600);
  return {
    bytes: Number(_sum.keptBytes ?? 0),
    releaseInSeconds: Math.max(1, Math.ceil((releasedAt.getTime() - now.getTime()) / 1000)),
  };
}

export async function listFetches(db: Db, agentId: string, page: PageRequest) {
  const rows = await readKeyset(page, (where, order) =>
    db.fetch.findMany({ where: { agentId, ...where }, ...order }),
  );
  return rows.map((row) => ({ ...row, ...placeOf(row) }));
}

/** Longer than bills are disputed. */
const KEPT_DAYS = 90;
const BATCH = 5_000;

/** In batches, so that no lock is held for long. */
export async function forgetFetches(db: Db): Promise<number> {
  const before = hoursBefore(await databaseNow(db), KEPT_DAYS * 24);
  let forgotten = 0;
  for (;;) {
    const old = await db.fetch.findMany({
      where: { createdAt: { lt: before } },
      select: { id: true },
      orderBy: { createdAt: "asc" },
      take: BATCH,
    });
    const ids = old.map(({ id }) => id);
    const where = { id: { in: ids }, createdAt: { lt: before } };
    forgotten += (await db.fetch.deleteMany({ where })).count;
    if (ids.length < BATCH) return forgotten;
  }
}
