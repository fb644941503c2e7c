/** Webhooks, notifications and deliveries, as an owner reads and changes them. */
import { newId } from "../../core/ids.ts";
import type { PageRequest, Place } from "../../core/paging.ts";
import {
  databaseNow,
  jsonOf,
  placeOf,
  readKeyset,
  secondsAfter,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";

export type WebhookRow = Prisma.WebhookGetPayload<object>;
export type DeliveryRow = Prisma.WebhookDeliveryGetPayload<object>;
type Listed<Row> = Row & Place;

const listed = <Row extends { id: string; createdAt: Date }>(rows: readonly Row[]): Listed<Row>[] =>
  rows.map((row) => ({ ...row, ...placeOf(row) }));

/** With the names of their agents, as far as these are still the owner's. */
export async function listNotifications(
  db: Db,
  of: { ownerId: string; type?: string; agentId?: string; readAt?: null | { not: null } },
  page: PageRequest,
): Promise<Listed<Prisma.NotificationGetPayload<object> & { agentName: string | undefined }>[]> {
  const rows = await readKeyset(page, (where, order) =>
    db.notification.findMany({ where: { ...of, ...where }, ...order }),
  );
  const agents = await db.agent.findMany({
    where: { ownerId: of.ownerId, id: { in: rows.flatMap(({ agentId }) => agentId ?? []) } },
    select: { id: true, name: true },
  });
  const names = new Map(agents.map(({ id, name }) => [id, name]));
  return listed(rows.map((row) => ({ ...row, agentName: names.get(row.agentId ?? "") })));
}

const MOST_UNREAD = 1_000;

export async function countUnread(db: Db, ownerId: string): Promise<number> {
  return db.notification.count({ where: { ownerId, readAt: null }, take: MOST_UNREAD });
}

/** Without ids and `before`: all that exist now. */
export async function markRead(
  db: Db,
  {
    ownerId,
    ids,
    before,
  }: { ownerId: string; ids?: string[] | undefined; before?: Date | undefined },
): Promise<void> {
  await db.notification.updateMany({
    where: {
      ownerId,
      readAt: null,
      ...(ids && { id: { in: ids } }),
      // The app knows milliseconds, the rows have microseconds.
      ...(before && { createdAt: { lt: new Date(before.getTime() + 1) } }),
    },
    data: { readAt: await databaseNow(db) },
  });
}

/** Deleted webhooks are no longer shown to their owner. */
const KEPT = { status: { not: "deleted" } };

export async function listWebhooks(db: Db, ownerId: string): Promise<WebhookRow[]> {
  return db.webhook.findMany({
    where: { ownerId, ...KEPT },
    orderBy: [{ createdAt: "desc" }, { id: "desc" }],
  });
}

export async function findWebhook(
  db: Db,
  of: { ownerId: string; id: string },
): Promise<WebhookRow | null> {
  return db.webhook.findFirst({ where: { ...of, ...KEPT } });
}

/** Serializes changes of an owner's webhooks, without blocking anything else. */
export async function lockOwner(tx: Db, ownerId: string): Promise<void> {
  // SQL: a lock that does not block inserts of rows that refer to this one.
  await tx.$queryRaw`SELECT 1 FROM owners WHERE id = ${ownerId} FOR NO KEY UPDATE`;
}

export async function countWebhooks(db: Db, ownerId: string): Promise<number> {
  return db.webhook.count({ where: { ownerId, ...KEPT } });
}

type NewWebhook = Pick<
  WebhookRow,
  "id" | "ownerId" | "url" | "types" | "description" | "secretKid" | "secretHint"
> & { secret: Uint8Array };

const bytes = (value: Uint8Array): Uint8Array<ArrayBuffer> => new Uint8Array(value);

export async function insertWebhook(db: Db, webhook: NewWebhook): Promise<WebhookRow> {
  const createdAt = await databaseNow(db);
  return db.webhook.create({ data: { ...webhook, secret: bytes(webhook.secret), createdAt } });
}

export type WebhookChange = Partial<Pick<WebhookRow, "url" | "types" | "description" | "status">>;

/** A new target, or a restart: the recorded failures and successes of the old one no longer count. */
export async function updateWebhook(
  tx: Db,
  before: WebhookRow,
  change: WebhookChange,
): Promise<WebhookRow> {
  const isAnew =
    (change.url !== undefined && change.url !== before.url) ||
    (change.status === "active" && before.status !== "active");
  const forgotten = {
    failures: 0,
    failingSince: null,
    deliveredAt: null,
    retryAt: await databaseNow(tx),
  };
  return tx.webhook.update({
    where: { id: before.id },
    data: {
      ...change,
      ...(change.status === undefined ? {} : { disabledReason: null }),
      ...(isAnew ? forgotten : {}),
    },
  });
}

interface Sealed {
  secret: Uint8Array;
  previousSecret: Uint8Array | null;
  kid: string;
}

export async function writeSecrets(
  tx: Db,
  id: string,
  { secret, previousSecret, kid }: Sealed,
  more: { secretHint?: string; previousSecretUntil?: Date | null } = {},
): Promise<WebhookRow> {
  return tx.webhook.update({
    where: { id },
    data: {
      secret: bytes(secret),
      previousSecret: previousSecret && bytes(previousSecret),
      secretKid: kid,
      ...more,
    },
  });
}

/**
 * No longer shown, and nothing is delivered. There may be very many deliveries, so a job deletes them, and then the
 * row.
 */
export async function deleteWebhook(tx: Db, id: string): Promise<void> {
  await tx.webhook.update({ where: { id }, data: { status: "deleted", disabledReason: null } });
}

/** Some webhooks whose secrets are under another master key, locked. In random order, because some may not decrypt. */
export async function lockSealedOtherwise(tx: Db, kid: string): Promise<WebhookRow[]> {
  // SQL: SKIP LOCKED.
  const rows = await tx.$queryRaw<{ id: string }[]>`
    SELECT id FROM webhooks WHERE secret_kid < ${kid} OR secret_kid > ${kid}
     ORDER BY random() LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED`;
  return tx.webhook.findMany({ where: { id: { in: rows.map(({ id }) => id) } } });
}

/** To this one webhook only, whatever events it subscribed to. */
export async function insertTest(tx: Db, webhook: WebhookRow): Promise<DeliveryRow> {
  const { id: webhookId, ownerId } = webhook;
  const createdAt = await databaseNow(tx);
  const notificationId = newId("ntf");
  const type = "webhook.test";
  const data = { webhookId, message: "This is a test of your webhook." };
  await tx.notification.create({
    data: {
      ownerId,
      id: notificationId,
      type,
      subjectId: webhookId,
      data: jsonOf(data),
      createdAt,
      readAt: createdAt,
    },
  });
  return tx.webhookDelivery.create({
    data: {
      ownerId,
      id: newId("dlv"),
      webhookId,
      notificationId,
      type,
      createdAt,
      nextAttemptAt: createdAt,
      giveUpAt: secondsAfter(createdAt, DAY_SECONDS),
    },
  });
}
const DAY_SECONDS = 24 * 3600;

export async function listDeliveries(
  db: Db,
  of: { ownerId: string; webhookId: string; status?: string },
  page: PageRequest,
): Promise<Listed<DeliveryRow>[]> {
  return listed(
    await readKeyset(page, (where, order) =>
      db.webhookDelivery.findMany({ where: { ...of, ...where }, ...order }),
    ),
  );
}

/** Restarts the delivery with the same id. An attempt in progress can no longer record its outcome. */
export async function resendDelivery(
  tx: Db,
  of: { ownerId: string; webhookId: string; id: string },
): Promise<DeliveryRow | null> {
  const now = await databaseNow(tx);
  const { count } = await tx.webhookDelivery.updateMany({
    where: of,
    data: {
      status: "waiting",
      attempts: 0,
      claims: { increment: 1 },
      deliveredAt: null,
      nextAttemptAt: now,
      giveUpAt: secondsAfter(now, DAY_SECONDS),
    },
  });
  if (count === 0) return null;
  return tx.webhookDelivery.findFirst({ where: of });
}
