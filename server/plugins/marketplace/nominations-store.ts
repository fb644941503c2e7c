/** Stored nominations: URLs accepted within quotas, probed in order, and then listed or refused. */
import { newId } from "../../core/ids.ts";
import {
  databaseNow,
  hoursBefore,
  secondsAfter,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";
import type { Nomination, AnnouncementResult } from "./announcement.ts";

/** Per 24 hours. A payment of a millionth is enough for a nomination, so they are counted by sender. */
const QUOTAS = { payer: 20, payee: 20, host: 50, waiting: 1_000 };
const QUOTA_HOURS = 24;
/** So that one payee cannot fill the catalogue. */
const MAX_PER_PAYEE = 50;

const rejected = (rejectedReason: string): AnnouncementResult => ({
  status: "rejected",
  rejectedReason,
});

/** A known endpoint stays unchanged, whatever the payment announces. */
export async function nominate(db: Db, nomination: Nomination): Promise<AnnouncementResult> {
  const { url, host, payTo, payer, network } = nomination;
  const known = await resultOf(db, nomination);
  if (known) return known;
  const now = await databaseNow(db);
  await db.nomination.createMany({
    data: [{ id: newId("nom"), url, host, payTo, payer, network, nextTryAt: now, createdAt: now }],
    skipDuplicates: true,
  });
  return PROCESSING;
}

/** The result of an announcement without storing it; undefined if it would be a new nomination. */
export async function resultOf(
  db: Db,
  nomination: Nomination,
): Promise<AnnouncementResult | undefined> {
  const { url, payTo, network } = nomination;
  const known = await db.listing.findFirst({
    // A catalogue's entry becomes the seller's own by the payment.
    where: { url, method: "GET", payTo, network, foundIn: null },
    select: { id: true },
  });
  if (known) return { status: "success" };
  const before = await db.nomination.findUnique({
    where: { url_payTo_network: { url, payTo, network } },
  });
  if (before) return before.status === "refused" ? rejected(before.reason ?? "") : PROCESSING;
  const now = await databaseNow(db);
  const reason = await overQuota(db, nomination, hoursBefore(now, QUOTA_HOURS));
  return reason === undefined ? undefined : rejected(reason);
}

const PROCESSING: AnnouncementResult = { status: "processing" };

async function overQuota(
  db: Db,
  { host, payTo, payer }: Nomination,
  since: Date,
): Promise<string | undefined> {
  const recent = (where: Prisma.NominationWhereInput): Promise<number> =>
    db.nomination.count({ where: { ...where, createdAt: { gte: since } } });
  const [ofPayer, ofPayee, ofHost, waiting, listed, isProven] = await Promise.all([
    recent({ payer }),
    recent({ payTo }),
    recent({ host }),
    db.nomination.count({ where: { status: "waiting" } }),
    // Catalogues must not use up a payee's places.
    db.listing.count({ where: { payTo, source: "bazaar", foundIn: null } }),
    db.listing.count({ where: { host, payTo, status: "active" } }),
  ]);
  if (ofPayer >= QUOTAS.payer) return `This payer announced ${QUOTAS.payer} URLs today.`;
  if (ofPayee >= QUOTAS.payee) return `This payee was announced ${QUOTAS.payee} times today.`;
  // A third party cannot use up a host's quota for the payee that is known to sell there.
  if (isProven === 0 && ofHost >= QUOTAS.host)
    return `This host was announced ${QUOTAS.host} times today.`;
  if (listed >= MAX_PER_PAYEE) return `This payee has ${MAX_PER_PAYEE} announced listings.`;
  if (waiting >= QUOTAS.waiting)
    return "Too many URLs are waiting to be checked. Announce this one later.";
  return undefined;
}

export interface WaitingNomination extends Nomination {
  id: string;
  tries: number;
}

/** Claimed like listings: at most one of a host at a time, each by one replica. */
export async function claimNominations(
  db: Db,
  options: { limit: number; leaseMs: number; exceptHosts: readonly string[] },
): Promise<WaitingNomination[]> {
  // SQL: DISTINCT ON within a locking read, and SKIP LOCKED.
  return db.$queryRaw<WaitingNomination[]>`
    UPDATE nominations SET next_try_at = now() + ${options.leaseMs}::int * interval '1 millisecond',
           tries = tries + 1
     WHERE id IN (
       SELECT id FROM nominations
        WHERE id IN (SELECT DISTINCT ON (host) id FROM nominations
                      WHERE status = 'waiting' AND next_try_at <= now()
                        AND NOT host = ANY (${[...options.exceptHosts]}::text[])
                      ORDER BY host, next_try_at)
          AND status = 'waiting' AND next_try_at <= now()
        ORDER BY tries, next_try_at LIMIT ${options.limit} FOR UPDATE SKIP LOCKED)
     RETURNING id, url, host, pay_to AS "payTo", payer, network, tries`;
}

export async function endNomination(
  db: Db,
  id: string,
  end: { status: "listed" } | { status: "refused"; reason: string },
): Promise<void> {
  await db.nomination.updateMany({ where: { id }, data: end });
}

export async function postponeNomination(db: Db, id: string, seconds: number): Promise<void> {
  const nextTryAt = secondsAfter(await databaseNow(db), seconds);
  await db.nomination.updateMany({ where: { id }, data: { nextTryAt } });
}
