/**
 * Orders of teams that wait for more signatures, with the request that needs them. Nothing here is carried out: the client of the
 * last member who signs sends the request, and then every signature is checked again.
 */
import { getAddress, type Address, type Hex } from "viem";
import { newId } from "../../core/ids.ts";
import {
  orderDigest,
  readOrder,
  typedDataOf,
  type Form,
  type OrderKind,
  type Orders,
} from "../../core/orders.ts";
import {
  newlyNamed,
  type MemberList,
  progressOf,
  purposeOf,
  readTeamSignature,
  signersFor,
  writeTeamSignature,
  type Progress,
} from "../../core/teams.ts";
import { ApiError } from "../../errors.ts";
import { databaseNow, jsonOf, type Db } from "../../infra/db/prisma.ts";
import type { OrderOwner, SignedOrder } from "./types.ts";

/** Waiting at the same time, so that nobody fills the table. */
export const MAX_WAITING = 100;

export interface WaitingRow {
  id: string;
  teamId: string;
  /** Who sent it. */
  member: Address;
  kind: OrderKind;
  chainId: number;
  form: Form;
  document: Orders[OrderKind];
  method: string;
  path: string;
  body: Record<string, unknown>;
  signature: Hex;
  expiresAt: Date;
  createdAt: Date;
}

const rowOf = (stored: Awaited<ReturnType<Db["waitingOrder"]["findUniqueOrThrow"]>>) =>
  ({ ...stored, chainId: Number(stored.chainId) }) as unknown as WaitingRow;

export async function listWaiting(db: Db, teamId: string): Promise<WaitingRow[]> {
  const where = { teamId, expiresAt: { gt: await databaseNow(db) } };
  const orderBy = [{ createdAt: "desc" as const }, { id: "desc" as const }];
  return (await db.waitingOrder.findMany({ where, orderBy, take: MAX_WAITING })).map(rowOf);
}

/** New lists of members that wait for the signature of this account: it is named in them. */
export async function invitationsOf(db: Db, account: Address): Promise<WaitingRow[]> {
  const where = {
    kind: "Members",
    expiresAt: { gt: await databaseNow(db) },
    document: { path: ["members"], array_contains: [{ account: getAddress(account) }] },
  };
  const orderBy = { createdAt: "desc" as const };
  return (await db.waitingOrder.findMany({ where, orderBy, take: MAX_WAITING })).map(rowOf);
}

export async function findWaiting(db: Db, id: string): Promise<WaitingRow | undefined> {
  const where = { id, expiresAt: { gt: await databaseNow(db) } };
  const stored = await db.waitingOrder.findFirst({ where });
  return stored === null ? undefined : rowOf(stored);
}

/** It was carried out, or would do something else by now. */
export async function endWaiting(tx: Db, nonce: Hex): Promise<void> {
  await tx.waitingOrder.deleteMany({ where: { nonce } });
}

/** False if it has ended already. */
export async function withdrawWaiting(tx: Db, teamId: string, id: string): Promise<boolean> {
  return (await tx.waitingOrder.deleteMany({ where: { teamId, id } })).count === 1;
}

/** The members changed: each order is asked for again. */
export async function endAllWaiting(tx: Db, teamId: string): Promise<void> {
  await tx.waitingOrder.deleteMany({ where: { teamId } });
}

/** Stores the request and the signature, or adds the signature if it waits already. */
export async function keepWaiting(
  tx: Db,
  owner: OrderOwner,
  signed: SignedOrder,
): Promise<ApiError> {
  const { member } = owner;
  const { missing: progress, order, kind, chainId, form, signature } = signed;
  if (!member || !progress) throw new Error("only a member of a team waits for others");
  const { method, path, body } = member.sent();
  const nonce = order.nonce as Hex;
  const expiresAt = new Date(Number(order.deadline) * 1000);
  // SQL: a row lock, so that two members who sign at once are both counted.
  await tx.$queryRaw`SELECT 1 FROM owners WHERE id = ${owner.id} FOR NO KEY UPDATE`;
  const known = await tx.waitingOrder.findUnique({ where: { nonce } });
  if (known) {
    if (known.teamId !== owner.id) throw new ApiError("order_used");
    const whole = merged(known.signature, signature);
    await tx.waitingOrder.update({ where: { nonce }, data: { signature: whole } });
    const collected = [...new Set([...signersIn(known.signature), ...signersIn(signature)])];
    return answerOf(known.id, expiresAt, { ...progress, collected });
  }
  const waiting = await tx.waitingOrder.count({
    where: { teamId: owner.id, expiresAt: { gt: await databaseNow(tx) } },
  });
  if (waiting >= MAX_WAITING)
    throw new ApiError("conflict", {
      detail: `${MAX_WAITING} orders of this team wait for signatures. Sign or withdraw some first.`,
    });
  const id = newId("wto");
  await tx.waitingOrder.create({
    data: {
      id,
      teamId: owner.id,
      member: member.address,
      kind,
      nonce,
      chainId: BigInt(chainId),
      form,
      document: jsonOf(order),
      method,
      path,
      body: jsonOf(body as object),
      signature,
      expiresAt,
      createdAt: await databaseNow(tx),
    },
  });
  return answerOf(id, expiresAt, progress);
}

const signersIn = (signature: string): string[] =>
  (readTeamSignature(signature) ?? []).map(({ address }) => address);

const merged = (...signatures: string[]): Hex =>
  writeTeamSignature(signatures.flatMap((one) => readTeamSignature(one) ?? [])) as Hex;

const answerOf = (id: string, expiresAt: Date, { collected, needed }: Progress): ApiError =>
  new ApiError("signatures_missing", {
    detail: `${collected.length} of ${needed} members have signed. Nothing was changed yet.`,
    extra: {
      id,
      collected: collected.map((address) => getAddress(address)),
      needed,
      expiresAt: expiresAt.toISOString(),
    },
  });

/** Who has signed, of those whose signature counts with this list. */
export function progressWith(list: MemberList, row: WaitingRow): Progress {
  const purpose = purposeOf(row.kind, row.document);
  const counted = new Set(signersFor(list, purpose).map(({ address }) => address));
  const signed = signersIn(row.signature).filter((address) => counted.has(address));
  return progressOf(list, purpose, new Set(signed));
}

/** The account as this order's signers name it; undefined if its signature does not count. */
export const signerAs = (list: MemberList, row: WaitingRow, account: Address) =>
  signersFor(list, purposeOf(row.kind, row.document)).find(({ address }) => address === account);

/** Whether the list that waits names this account as somebody who decides, and it did not before. */
export function isInvited(list: MemberList, row: WaitingRow, account: Address): boolean {
  const purpose = purposeOf(row.kind, row.document);
  if (purpose.kind !== "members") return false;
  return newlyNamed(list, purpose.next).some(({ address }) => address === account);
}

export function digestOf({ kind, document, chainId, form }: WaitingRow): Hex {
  const order = readOrder(kind, document);
  if (!order) throw new Error("a stored order cannot be read");
  return orderDigest(kind, order, chainId, form);
}

/** Adds a signature that was checked. Undefined if the order has ended meanwhile. */
export async function addSignature(
  tx: Db,
  { id, teamId }: WaitingRow,
  by: { address: Address; signature: Hex },
): Promise<WaitingRow | undefined> {
  // SQL: the same lock as above.
  await tx.$queryRaw`SELECT 1 FROM owners WHERE id = ${teamId} FOR NO KEY UPDATE`;
  const row = await findWaiting(tx, id);
  if (!row) return undefined;
  const signature = merged(row.signature, writeTeamSignature([by]));
  return rowOf(await tx.waitingOrder.update({ where: { id }, data: { signature } }));
}

/** The request to send, with the signatures so far. */
export function requestOf({ method, path, body, signature }: WaitingRow) {
  const { authorization } = body as { authorization?: object };
  return {
    method,
    path,
    body: authorization
      ? { ...body, authorization: { ...authorization, signature } }
      : { ...body, signature },
  };
}

export const typedDataFor = ({ kind, document, chainId, form }: WaitingRow) =>
  typedDataOf(kind, document, chainId, form);
