/** Stored mails: composed of waiting events, claimed, sent at least once, deleted. */
import { getAddress } from "viem";
import { databaseNow, hoursBefore, secondsAfter, type Db } from "../../infra/db/prisma.ts";
import { findEmail, mailRow, nextDigest, stopAddress } from "./mail-address-store.ts";
import type { MailOutcome } from "./mail-server.ts";
import type { MailContent, MailBatch } from "./mail-texts.ts";

const URGENT_PER_HOUR = 4;
const MAX_ITEMS = 20;
/** The most events in one mail, because a statement has five seconds. The rest follows at once in the next mail. */
const MOST_IN_A_MAIL = 20_000;
/** Longer than any attempt: after it, the process that claimed the mail counts as dead. */
const LEASE_SECONDS = 120;
const GIVE_UP_HOURS = 24;
const BACKOFF_SECONDS = [60, 120, 300, 600, 900, 1800, 3600] as const;
/** An address that refuses mails this often and for this long is stopped. */
const STOP_AFTER = { refusals: 3, hours: 72 };
const CONFIRM_HOURS = 24;
/** How long the unsubscribe link of an old mail works. */
const UNSUBSCRIBE_DAYS = 180;

/** Owners for whom a mail may be due. */
export async function ownersDue(db: Db): Promise<string[]> {
  // SQL: two indexes with only what is due, and the database's clock.
  const rows = await db.$queryRaw<{ ownerId: string }[]>`
    SELECT DISTINCT owner_id AS "ownerId" FROM mail_waiting WHERE urgent
     UNION
    SELECT owner_id FROM email_addresses WHERE digest <> 'off' AND next_digest_at <= now()`;
  return rows.map(({ ownerId }) => ownerId);
}

/** Composes at most one urgent mail and one digest from the waiting events. Returns how many. */
export async function makeMails(
  tx: Db,
  ownerId: string,
  most: number = MOST_IN_A_MAIL,
): Promise<number> {
  // SQL: skips an owner whose row is locked because another process is composing its mails.
  const locked = await tx.$queryRaw<unknown[]>`
    SELECT 1 FROM email_addresses WHERE owner_id = ${ownerId} FOR NO KEY UPDATE SKIP LOCKED`;
  const row = await findEmail(tx, ownerId);
  if (locked.length === 0 || !row) return 0;
  const { address, stoppedAt, digest } = row;
  const now = await databaseNow(tx);
  const isDigestDue = digest !== "off" && row.nextDigestAt <= now;
  if (isDigestDue)
    await tx.emailAddress.update({
      where: { ownerId },
      data: { nextDigestAt: nextDigest(now, digest) },
    });
  if (address === null || stoppedAt !== null) return 0;
  const lately = { ownerId, kind: "urgent", createdAt: { gt: hoursBefore(now, 1) } };
  const mayHurry = (await tx.mail.count({ where: lately })) < URGENT_PER_HOUR;
  const kinds: ("urgent" | "digest")[] = [
    ...(mayHurry ? ["urgent" as const] : []),
    ...(isDigestDue ? ["digest" as const] : []),
  ];
  let made = 0;
  for (const kind of kinds) {
    const batch = await take(tx, ownerId, { isUrgent: kind === "urgent", most });
    if (batch.isMore && kind === "digest")
      await tx.emailAddress.update({ where: { ownerId }, data: { nextDigestAt: now } });
    if (batch.count === 0) continue;
    const owner = await tx.owner.findUniqueOrThrow({ where: { id: ownerId } });
    const content: MailContent = { kind, owner: getAddress(owner.address), batch };
    await tx.mail.create({ data: mailRow(ownerId, address, content, { now }) });
    made += 1;
  }
  return made;
}

async function take(
  tx: Db,
  ownerId: string,
  { isUrgent, most }: { isUrgent: boolean; most: number },
): Promise<MailBatch> {
  // SQL: waiting events are counted, summed and deleted in one statement.
  const rows = await tx.$queryRaw<{ batch: MailBatch }[]>`
    SELECT purser_mail_take(${ownerId}, ${isUrgent}, ${MAX_ITEMS}::integer, ${most}::integer) AS batch`;
  return (rows[0] as { batch: MailBatch }).batch;
}

export interface ClaimedMail {
  id: string;
  ownerId: string;
  address: string;
  content: MailContent;
  attempts: number;
  createdAt: Date;
}

/** No other process sends these until the lease expires. */
export async function claimMails(db: Db, limit: number): Promise<ClaimedMail[]> {
  // SQL: SKIP LOCKED, so that replicas take different ones.
  const rows = await db.$queryRaw<(ClaimedMail & { kind: string; content: object })[]>`
    UPDATE mails SET attempts = attempts + 1,
           next_attempt_at = clock_timestamp() + make_interval(secs => ${LEASE_SECONDS}::integer)
     WHERE id IN (SELECT id FROM mails WHERE status = 'waiting' AND next_attempt_at <= now()
                   ORDER BY next_attempt_at LIMIT ${limit}::integer FOR UPDATE SKIP LOCKED)
    RETURNING id, owner_id AS "ownerId", address, kind, content, attempts, created_at AS "createdAt"`;
  return rows.map(({ kind, content, ...row }) => ({
    ...row,
    content: { ...content, kind } as unknown as MailContent,
  }));
}

/** The address may have changed since the mail was composed. */
export async function isWanted(
  db: Db,
  { ownerId, address, content }: ClaimedMail,
): Promise<boolean> {
  if (content.kind === "address") return true;
  const row = await findEmail(db, ownerId);
  if (content.kind === "confirmation") return row?.pendingAddress === address;
  return row?.address === address && row.stoppedAt === null;
}

/** Stored before the mail is sent: an unused token does no harm. */
export async function keepToken(
  db: Db,
  { ownerId, address }: ClaimedMail,
  token: { hash: Uint8Array<ArrayBuffer>; purpose: "confirm" | "unsubscribe" },
): Promise<void> {
  const now = await databaseNow(db);
  const hours = token.purpose === "confirm" ? CONFIRM_HOURS : UNSUBSCRIBE_DAYS * 24;
  await db.mailToken.create({
    data: { ...token, ownerId, address, createdAt: now, expiresAt: hoursBefore(now, -hours) },
  });
}

const fateOf = (mail: ClaimedMail, outcome: MailOutcome, now: Date) => {
  if (outcome.kind === "sent") return "sent";
  if (outcome.kind === "refused") return "refused";
  return mail.createdAt <= hoursBefore(now, GIVE_UP_HOURS) ? "given_up" : "waiting";
};

/** Records the result of an attempt, and its meaning for the address. Returns the mail's status. */
export async function settleMail(
  tx: Db,
  mail: ClaimedMail,
  outcome: MailOutcome,
): Promise<"sent" | "refused" | "given_up" | "waiting"> {
  const now = await databaseNow(tx);
  const status = fateOf(mail, outcome, now);
  const lastError = outcome.kind === "sent" ? null : outcome.reason;
  const waits = BACKOFF_SECONDS[Math.min(mail.attempts, BACKOFF_SECONDS.length) - 1] ?? 60;
  await tx.mail.updateMany({
    // Another process may have sent it meanwhile, if our lease expired.
    where: { id: mail.id, status: "waiting" },
    data: {
      status,
      lastError,
      sentAt: status === "sent" ? now : null,
      nextAttemptAt: secondsAfter(now, waits),
    },
  });
  const { ownerId, address } = mail;
  if (status === "sent")
    await tx.emailAddress.updateMany({
      where: {
        ownerId,
        OR: [{ address }, { pendingAddress: address }],
        lastError: { not: null },
      },
      data: { refusals: 0, failingSince: null, lastError: null },
    });
  // A failure of our own server proves nothing about the address.
  else if (status === "refused" || (status === "given_up" && outcome.kind === "later"))
    await noteRefusal(tx, { ownerId, address, lastError }, now);
  return status;
}

async function noteRefusal(
  tx: Db,
  refusal: { ownerId: string; address: string; lastError: string | null },
  now: Date,
): Promise<void> {
  const { ownerId, address, lastError } = refusal;
  const row = await findEmail(tx, ownerId);
  if (!row || (row.address !== address && row.pendingAddress !== address)) return;
  if (row.address !== address) {
    await tx.emailAddress.update({ where: { ownerId }, data: { lastError } });
    return;
  }
  const since = row.failingSince ?? now;
  const refusals = row.refusals + 1;
  await tx.emailAddress.update({
    where: { ownerId },
    data: { refusals, failingSince: since, lastError },
  });
  const isLong = since <= hoursBefore(now, STOP_AFTER.hours);
  if (refusals >= STOP_AFTER.refusals && isLong)
    await stopAddress(tx, { ownerId, address, reason: "refused", requestId: "mail" }, now);
}

export async function dropMail(db: Db, id: string, why: string): Promise<void> {
  await db.mail.updateMany({
    where: { id, status: "waiting" },
    data: { status: "given_up", lastError: why },
  });
}

/** Without a mail server, waiting mails must not pile up. */
export async function dropAll(db: Db): Promise<void> {
  await inBatches(({ limit }) => db.mailWaiting.deleteMany({ limit }));
  const data = { status: "given_up", lastError: "This service sends no e-mail." };
  await inBatches(({ limit }) => db.mail.updateMany({ where: { status: "waiting" }, data, limit }));
}

const BATCH = 2_000;

/** In batches, so that no statement takes long, and no other transaction waits for its locks. */
async function inBatches(
  work: (batch: { limit: number }) => Promise<{ count: number }>,
): Promise<void> {
  for (let count = BATCH; count === BATCH;) ({ count } = await work({ limit: BATCH }));
}
