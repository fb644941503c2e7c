/** The ways out of the app that failed since their last success, so that the app can show them. */
import type { Db } from "../../infra/db/prisma.ts";
import type { FailingChannel } from "../../schemas/notifications.ts";

const UNKNOWN = "The last attempt failed";

export async function failingChannels(db: Db, ownerId: string): Promise<FailingChannel[]> {
  const found = await Promise.all([
    failingWebhooks(db, ownerId),
    failingEmail(db, ownerId),
    failingDevices(db, ownerId),
  ]);
  return found.flat();
}

async function failingWebhooks(db: Db, ownerId: string): Promise<FailingChannel[]> {
  const rows = await db.webhook.findMany({
    where: { ownerId, OR: [{ status: "active", failures: { gt: 0 } }, { status: "disabled" }] },
    orderBy: { id: "asc" },
  });
  return Promise.all(
    rows.map(async ({ id, url, failingSince, disabledReason, createdAt }) => ({
      channel: "webhook",
      id,
      name: url,
      since: (failingSince ?? createdAt).toISOString(),
      error: disabledReason ?? (await lastErrorOf(db, ownerId, id)),
    })),
  );
}

async function lastErrorOf(db: Db, ownerId: string, webhookId: string): Promise<string> {
  const last = await db.webhookDelivery.findFirst({
    where: { ownerId, webhookId, status: { in: ["failed", "given_up"] } },
    orderBy: [{ createdAt: "desc" }, { id: "desc" }],
    select: { lastError: true },
  });
  return last?.lastError ?? UNKNOWN;
}

/** The mailbox may refuse mails, or our own mail server may not take them. */
async function failingEmail(db: Db, ownerId: string): Promise<FailingChannel[]> {
  const row = await db.emailAddress.findUnique({ where: { ownerId } });
  if (!row || row.stoppedReason === "unsubscribed") return [];
  const name = row.address ?? row.pendingAddress ?? "";
  const view = (since: Date, error: string | null): FailingChannel[] => [
    { channel: "email", id: null, name, since: since.toISOString(), error: error ?? UNKNOWN },
  ];
  if (row.stoppedAt !== null) return view(row.failingSince ?? row.stoppedAt, row.lastError);
  if (row.lastError !== null) return view(row.failingSince ?? row.createdAt, row.lastError);
  const waiting = await db.mail.findFirst({
    where: { ownerId, status: "waiting", lastError: { not: null } },
    orderBy: { createdAt: "asc" },
  });
  return waiting ? view(waiting.createdAt, waiting.lastError) : [];
}

async function failingDevices(db: Db, ownerId: string): Promise<FailingChannel[]> {
  const rows = await db.pushDevice.findMany({
    where: { ownerId, failures: { gt: 0 } },
    orderBy: { id: "asc" },
  });
  return rows.map(({ id, label, failingSince, createdAt, lastError }) => ({
    channel: "push",
    id,
    name: label,
    since: (failingSince ?? createdAt).toISOString(),
    error: lastError ?? UNKNOWN,
  }));
}
