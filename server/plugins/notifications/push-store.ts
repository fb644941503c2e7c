/** Stored devices, and the notifications that wait to be pushed to them. */
import { createHash } from "node:crypto";
import { newId } from "../../core/ids.ts";
import { databaseNow, type Db, type Prisma } from "../../infra/db/prisma.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { URGENT_BY_DEFAULT } from "../../schemas/email.ts";
import { noteAudit, type AuditAction, NOBODY } from "../audit/store.ts";
import { restAfter, type Outcome } from "./message.ts";
import type { PushTarget } from "./push.ts";
import type { Notified } from "./sentences.ts";
import type { Caller } from "./webhooks.ts";

export type DeviceRow = Prisma.PushDeviceGetPayload<object>;

export const hashOfEndpoint = (endpoint: string): Uint8Array<ArrayBuffer> =>
  new Uint8Array(createHash("sha256").update(endpoint).digest());

export async function listDevices(db: Db, ownerId: string): Promise<DeviceRow[]> {
  return db.pushDevice.findMany({
    where: { ownerId },
    orderBy: [{ createdAt: "desc" }, { id: "desc" }],
  });
}

export async function findDevice(db: Db, ownerId: string, id: string): Promise<DeviceRow | null> {
  return db.pushDevice.findFirst({ where: { ownerId, id } });
}

interface NewDevice extends PushTarget {
  label: string;
  /** Undefined: those that the device has; those of `URGENT_BY_DEFAULT` if it is new. */
  types: string[] | undefined;
  sessionId: string;
}

/**
 * One row for each browser. A browser that registers again has new keys or a new session; if another owner signed in
 * there, it belongs to that owner from now on. Undefined: the owner has too many.
 */
export async function putDevice(
  tx: Db,
  caller: Caller,
  { endpoint, types, ...wanted }: NewDevice,
  most: number,
): Promise<DeviceRow | undefined> {
  const { ownerId } = caller;
  const endpointHash = hashOfEndpoint(endpoint);
  const before = await tx.pushDevice.findUnique({ where: { endpointHash } });
  if (before?.ownerId === ownerId)
    return tx.pushDevice.update({
      where: { id: before.id },
      data: {
        ...wanted,
        ...(types && { types }),
        failures: 0,
        failingSince: null,
        lastError: null,
      },
    });
  if (before) await removeDevice(tx, { ownerId: before.ownerId }, before);
  if ((await tx.pushDevice.count({ where: { ownerId } })) >= most) return undefined;
  const createdAt = await databaseNow(tx);
  const device = await tx.pushDevice.create({
    data: {
      ...wanted,
      id: newId("psh"),
      ownerId,
      endpoint,
      endpointHash,
      createdAt,
      types: types ?? [...URGENT_BY_DEFAULT],
    },
  });
  await note(tx, caller, "push.added", null, device);
  return device;
}

/** From the next event on; what waits already is still sent. */
export async function changeTypes(
  tx: Db,
  caller: Caller,
  device: DeviceRow,
  types: string[],
): Promise<DeviceRow> {
  const after = await tx.pushDevice.update({ where: { id: device.id }, data: { types } });
  await note(tx, caller, "push.changed", device, after);
  return after;
}

/** Without an actor: the browser or its push service ended it. */
export async function removeDevice(
  tx: Db,
  caller: Pick<Caller, "ownerId"> & Partial<Caller>,
  device: Pick<DeviceRow, "id" | "label">,
): Promise<void> {
  const { count } = await tx.pushDevice.deleteMany({ where: { id: device.id } });
  await tx.pushWaiting.deleteMany({ where: { deviceId: device.id } });
  if (count > 0) await note(tx, caller, "push.removed", device, null);
}

const note = (
  tx: Db,
  { ownerId, actor = NOBODY, requestId = "push" }: Pick<Caller, "ownerId"> & Partial<Caller>,
  action: AuditAction,
  ...[before, after]: [Facts | null, Facts | null]
): Promise<void> =>
  noteAudit(tx, {
    ownerId,
    agentId: null,
    actor,
    action,
    before: before && factsOf(before),
    after: after && factsOf(after),
    requestId,
  });
type Facts = Pick<DeviceRow, "id" | "label"> & Partial<Pick<DeviceRow, "types">>;
const factsOf = ({ id, label, types }: Facts): Record<string, unknown> => ({
  deviceId: id,
  label,
  ...(types && { types }),
});

/** Longer than any run of one device: after it, the process that claimed the device counts as dead. */
const LEASE_SECONDS = 120;
/** The most waiting rows that one statement looks at. */
const DUE_AT_ONCE = 1_000;

export interface ClaimedDevice extends PushTarget {
  id: string;
  ownerId: string;
  label: string;
  /** Messages of the current minute. */
  sent: number;
}

export async function isPushDue(sql: Sql): Promise<boolean> {
  // SQL: the database's clock.
  const { rows } = await sql.query<{ due: boolean }>(
    "SELECT EXISTS (SELECT 1 FROM push_waiting WHERE due_at <= clock_timestamp()) AS due",
  );
  return rows[0]?.due ?? false;
}

/** Devices with due notifications that no other process sends to. */
export async function claimDevices(sql: Sql, limit: number): Promise<ClaimedDevice[]> {
  // SQL: waiting rows of devices that were removed meanwhile.
  await sql.query(
    `DELETE FROM push_waiting w
      USING (SELECT device_id, notification_id FROM push_waiting WHERE due_at <= clock_timestamp()
              ORDER BY due_at LIMIT $1) AS due
      WHERE w.device_id = due.device_id AND w.notification_id = due.notification_id
        AND NOT EXISTS (SELECT 1 FROM push_devices d WHERE d.id = w.device_id)`,
    [DUE_AT_ONCE],
  );
  // SQL: SKIP LOCKED, so that replicas take different devices, and the count of the minute by the database's clock.
  const { rows } = await sql.query<ClaimedDevice>(
    `WITH due AS (
       SELECT device_id FROM push_waiting WHERE due_at <= clock_timestamp() ORDER BY due_at LIMIT $1),
     chosen AS (
       SELECT d.id FROM push_devices d
        WHERE d.id IN (SELECT device_id FROM due) AND d.leased_until <= clock_timestamp()
        LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
     UPDATE push_devices d
        SET leased_until = clock_timestamp() + make_interval(secs => $3),
            minute_sent = CASE WHEN d.minute_at > clock_timestamp() - interval '1 minute' THEN d.minute_sent ELSE 0 END,
            minute_at = CASE WHEN d.minute_at > clock_timestamp() - interval '1 minute' THEN d.minute_at
                             ELSE clock_timestamp() END
       FROM chosen WHERE d.id = chosen.id
     RETURNING d.id, d.owner_id AS "ownerId", d.label, d.endpoint, d.p256dh, d.auth, d.minute_sent AS sent`,
    [DUE_AT_ONCE, limit, LEASE_SECONDS],
  );
  return rows;
}

export interface WaitingEvent extends Notified {
  id: string;
}

/** What is due for a device, the oldest first. */
export async function readWaiting(sql: Sql, deviceId: string): Promise<WaitingEvent[]> {
  // SQL: due by the database's clock.
  const { rows } = await sql.query<WaitingEvent>(
    `SELECT n.id, n.type, n.data, n.agent_id AS "agentId", n.subject_id AS "subjectId", a.name AS "agentName"
       FROM push_waiting w
       JOIN notifications n ON n.owner_id = w.owner_id AND n.id = w.notification_id
       LEFT JOIN agents a ON a.id = n.agent_id AND a.owner_id = w.owner_id
      WHERE w.device_id = $1 AND w.due_at <= clock_timestamp()
      ORDER BY w.created_at, w.notification_id LIMIT $2`,
    [deviceId, DUE_AT_ONCE],
  );
  return rows;
}

/** The messages of this minute were sent: the rest waits for the next one. */
export async function waitForMinute(sql: Sql, deviceId: string): Promise<void> {
  // SQL: two tables, by the database's clock.
  await sql.query(
    `UPDATE push_waiting w SET due_at = d.minute_at + interval '1 minute'
       FROM push_devices d WHERE d.id = $1 AND w.device_id = d.id AND w.due_at <= clock_timestamp()`,
    [deviceId],
  );
}

export async function releaseDevice(sql: Sql, deviceId: string): Promise<void> {
  // SQL: only this column, which no one else writes.
  await sql.query("UPDATE push_devices SET leased_until = '-infinity' WHERE id = $1", [deviceId]);
}

/** Records the outcome of one message for these notifications. `counts`: it counts in the minute. */
export async function settlePush(
  tx: Db,
  device: Pick<ClaimedDevice, "id" | "ownerId" | "label">,
  outcome: Outcome,
  notificationIds: readonly string[],
): Promise<void> {
  const { id } = device;
  if (outcome.kind === "failed") {
    if (outcome.isGone) await removeDevice(tx, { ownerId: device.ownerId }, device);
    else await noteFailure(tx, id, outcome.error);
    return;
  }
  // The device first, as when it is removed, so that neither waits for the other.
  await tx.pushDevice.updateMany({
    where: { id },
    data: {
      failures: 0,
      failingSince: null,
      lastError: null,
      deliveredAt: await databaseNow(tx),
      ...(notificationIds.length > 0 && { minuteSent: { increment: 1 } }),
    },
  });
  await tx.pushWaiting.deleteMany({
    where: { deviceId: id, notificationId: { in: [...notificationIds] } },
  });
}

async function noteFailure(tx: Db, id: string, error: string): Promise<void> {
  // SQL: an increment in place, and the database's clock.
  const rows = await tx.$queryRaw<{ failures: number }[]>`
    UPDATE push_devices SET failures = failures + 1, last_error = left(${error}, 500),
           failing_since = coalesce(failing_since, clock_timestamp())
     WHERE id = ${id} RETURNING failures`;
  const seconds = restAfter(rows[0]?.failures ?? 1);
  // SQL: the device rests with all that waits for it.
  await tx.$executeRaw`
    WITH rested AS (
      UPDATE push_devices SET retry_at = clock_timestamp() + make_interval(secs => ${seconds}::integer)
       WHERE id = ${id} RETURNING id, retry_at)
    UPDATE push_waiting w SET due_at = r.retry_at FROM rested r
     WHERE w.device_id = r.id AND w.due_at < r.retry_at`;
}
