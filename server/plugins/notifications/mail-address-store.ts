/** An owner's e-mail address: set, confirmed, changed, removed or unsubscribed. */
import { mailboxOf } from "../../core/mail-settings.ts";
import { newId } from "../../core/ids.ts";
import { ApiError } from "../../errors.ts";
import { databaseNow, hoursBefore, secondsAfter, type Db } from "../../infra/db/prisma.ts";
import { NOBODY, noteAudit, type AuditAction } from "../audit/store.ts";
import type { MailContent } from "./mail-texts.ts";

/** Confirmation mails per day: anybody with a wallet can enter any address. */
const CONFIRMATIONS = { perOwner: 5, perMailbox: 3, inAll: 2_000 };
/** A second click within this time sends no second mail. */
const SAME_REQUEST_SECONDS = 60;
const DAY_HOURS = 24;
/** An advisory lock: one request at a time, so that the counts include concurrent requests. */
const NAMING_LOCK = 7_205_759_405;
/** The hour of the daily digest, UTC. */
const DIGEST_HOUR = 7;

export interface Owner {
  id: string;
  /** With checksum, for the mails. */
  address: string;
  /** The account that acted, if it is not the owner's own. */
  actor?: string;
  requestId: string;
}

interface Wanted {
  address: string;
  digest?: string | undefined;
  urgent?: string[] | undefined;
}

export const findEmail = (db: Db, ownerId: string) =>
  db.emailAddress.findUnique({ where: { ownerId } });
export type EmailRow = NonNullable<Awaited<ReturnType<typeof findEmail>>>;

/** The next full hour, or the next morning. */
export function nextDigest(now: Date, digest: string): Date {
  const next = new Date(now.getTime());
  next.setUTCMinutes(0, 0, 0);
  next.setUTCHours(next.getUTCHours() + 1);
  const wait = digest === "daily" ? (DIGEST_HOUR - next.getUTCHours() + 24) % 24 : 0;
  next.setUTCHours(next.getUTCHours() + wait);
  return next;
}

/**
 * Settings of the confirmed address change at once. A new address must be confirmed first; until then mails go to the
 * old one, which is notified of the change.
 */
export async function nameAddress(
  tx: Db,
  owner: Owner,
  wanted: Wanted,
  usual: readonly string[],
): Promise<EmailRow> {
  // SQL: an advisory lock, which Prisma does not have.
  await tx.$executeRaw`SELECT pg_advisory_xact_lock(${NAMING_LOCK})`;
  const now = await databaseNow(tx);
  const before = await findEmail(tx, owner.id);
  const digest = wanted.digest ?? before?.digest ?? "daily";
  const isSettled = before?.address === wanted.address && before.stoppedAt === null;
  const settings = {
    digest,
    urgent: wanted.urgent ?? before?.urgent ?? [...usual],
    nextDigestAt: nextDigest(now, digest),
  };
  if (isSettled)
    return tx.emailAddress.update({
      where: { ownerId: owner.id },
      data: { ...settings, pendingAddress: null },
    });
  // A change of settings for an unconfirmed address sends no other mail.
  const isSettingOnly =
    before?.pendingAddress === wanted.address &&
    before.stoppedAt === null &&
    (wanted.digest ?? wanted.urgent) !== undefined;
  const isNew = !isSettingOnly && (await requestConfirmation(tx, owner, wanted.address, now));
  const restart = { address: null, confirmedAt: null, ...FRESH };
  const row = await tx.emailAddress.upsert({
    where: { ownerId: owner.id },
    create: { ownerId: owner.id, ...settings, pendingAddress: wanted.address, createdAt: now },
    update: {
      ...settings,
      pendingAddress: wanted.address,
      ...(before?.stoppedAt ? restart : {}),
    },
  });
  if (isNew) {
    await note(tx, owner, "email.named", { address: wanted.address });
    if (row.address !== null && before?.pendingAddress !== wanted.address)
      await notifyOfChange(tx, owner, row.address, "asked");
  }
  return row;
}

const FRESH = {
  stoppedAt: null,
  stoppedReason: null,
  failingSince: null,
  refusals: 0,
  lastError: null,
};

/** False if a mail was sent just before. Throws if too many were requested. */
async function requestConfirmation(
  tx: Db,
  owner: Owner,
  address: string,
  now: Date,
): Promise<boolean> {
  const mailbox = mailboxOf(address);
  const today = { kind: "confirmation", createdAt: { gt: hoursBefore(now, DAY_HOURS) } };
  const isUnderway = await tx.mail.count({
    where: {
      ownerId: owner.id,
      address,
      kind: "confirmation",
      status: { in: ["waiting", "sent"] },
      createdAt: { gt: secondsAfter(now, -SAME_REQUEST_SECONDS) },
    },
  });
  if (isUnderway > 0) return false;
  const [ofOwner, ofMailbox, inAll] = [
    await tx.mail.count({ where: { ...today, ownerId: owner.id } }),
    await tx.mail.count({ where: { ...today, mailbox } }),
    await tx.mail.count({ where: today }),
  ];
  if (ofOwner >= CONFIRMATIONS.perOwner)
    throw tooMany(`You requested ${CONFIRMATIONS.perOwner} confirmation mails in 24 hours.`);
  if (ofMailbox >= CONFIRMATIONS.perMailbox)
    throw tooMany(
      `This address received ${CONFIRMATIONS.perMailbox} confirmation mails in 24 hours.`,
    );
  if (inAll >= CONFIRMATIONS.inAll)
    throw tooMany("This service reached its daily limit of confirmation mails.");
  const content: MailContent = { kind: "confirmation", owner: owner.address };
  await tx.mail.create({
    data: mailRow(owner.id, address, content, { now, mailbox }),
  });
  return true;
}

const RETRY_SECONDS = 3600;
const tooMany = (detail: string): ApiError =>
  new ApiError("rate_limited", {
    detail: `${detail} Check the mailbox and its spam folder, or try again later.`,
    extra: { retryAfterSeconds: RETRY_SECONDS },
    headers: { "retry-after": String(RETRY_SECONDS) },
  });

/** Undefined if the link has expired, was used, or belongs to another owner. */
export async function confirmAddress(
  tx: Db,
  owner: Owner,
  tokenHash: Uint8Array<ArrayBuffer>,
): Promise<EmailRow | undefined> {
  const now = await databaseNow(tx);
  const token = await tx.mailToken.findUnique({ where: { hash: tokenHash } });
  const row = await findEmail(tx, owner.id);
  if (token?.purpose !== "confirm" || token.ownerId !== owner.id || token.expiresAt <= now)
    return undefined;
  if (!row || row.pendingAddress !== token.address) return undefined;
  await tx.mailToken.deleteMany({ where: { ownerId: owner.id, purpose: "confirm" } });
  if (row.address !== null) await notifyOfChange(tx, owner, row.address, "moved");
  await note(tx, owner, "email.confirmed", { address: token.address });
  return tx.emailAddress.update({
    where: { ownerId: owner.id },
    data: {
      ...FRESH,
      address: token.address,
      confirmedAt: now,
      pendingAddress: null,
      nextDigestAt: nextDigest(now, row.digest),
    },
  });
}

export async function removeAddress(tx: Db, owner: Owner): Promise<void> {
  const row = await findEmail(tx, owner.id);
  if (!row) return;
  await forgetWaiting(tx, owner.id);
  await tx.mailToken.deleteMany({ where: { ownerId: owner.id } });
  await tx.emailAddress.delete({ where: { ownerId: owner.id } });
  await note(tx, owner, "email.removed", { address: row.address ?? row.pendingAddress });
  if (row.address !== null && row.stoppedAt === null)
    await notifyOfChange(tx, owner, row.address, "removed");
}

/** Needs only the token of a mail: whoever reads the mailbox may unsubscribe it. False if the token is unknown. */
export async function unsubscribe(
  tx: Db,
  tokenHash: Uint8Array<ArrayBuffer>,
  requestId: string,
): Promise<boolean> {
  const now = await databaseNow(tx);
  const token = await tx.mailToken.findUnique({ where: { hash: tokenHash } });
  if (token?.purpose !== "unsubscribe" || token.expiresAt <= now) return false;
  const { ownerId, address } = token;
  await stopAddress(tx, { ownerId, address, reason: "unsubscribed", requestId }, now);
  return true;
}

/** Runs once; an address that was changed or stopped meanwhile stays unchanged. */
export async function stopAddress(
  tx: Db,
  stop: {
    ownerId: string;
    address: string;
    reason: "unsubscribed" | "refused";
    requestId: string;
  },
  now: Date,
): Promise<void> {
  const { ownerId, address, reason, requestId } = stop;
  const { count } = await tx.emailAddress.updateMany({
    where: { ownerId, address, stoppedAt: null },
    data: { stoppedAt: now, stoppedReason: reason },
  });
  if (count === 0) return;
  await forgetWaiting(tx, ownerId);
  const by = { id: ownerId, address: NOBODY, requestId };
  await note(tx, by, "email.stopped", { address, reason });
}

/** Deletes the events waiting for that address; a mail about the address itself is still sent. */
async function forgetWaiting(tx: Db, ownerId: string): Promise<void> {
  await tx.mailWaiting.deleteMany({ where: { ownerId } });
  await tx.mail.deleteMany({
    where: { ownerId, status: "waiting", kind: { in: ["urgent", "digest"] } },
  });
}

async function notifyOfChange(
  tx: Db,
  owner: Owner,
  address: string,
  change: Extract<MailContent, { kind: "address" }>["change"],
): Promise<void> {
  const content: MailContent = { kind: "address", owner: owner.address, change };
  await tx.mail.create({
    data: mailRow(owner.id, address, content, { now: await databaseNow(tx) }),
  });
}

const note = (
  tx: Db,
  owner: Owner,
  action: Extract<AuditAction, `email.${string}`>,
  after: Record<string, unknown>,
): Promise<void> =>
  noteAudit(tx, {
    ownerId: owner.id,
    agentId: null,
    actor: (owner.actor ?? owner.address).toLowerCase(),
    action,
    before: null,
    after,
    requestId: owner.requestId,
  });

export const mailRow = (
  ownerId: string,
  address: string,
  { kind, ...content }: MailContent,
  { now, mailbox }: { now: Date; mailbox?: string },
) => ({
  id: newId("eml"),
  ownerId,
  address,
  kind,
  content: JSON.parse(JSON.stringify(content)) as object,
  mailbox: mailbox ?? null,
  createdAt: now,
  nextAttemptAt: now,
});
