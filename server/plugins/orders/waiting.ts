/**
 * Orders of teams that wait for more signatures, with the request that needs them. Nothing here is carried out: the client of the
 * last member who signs sends the request, and then every signature is checked again.
 */
import { isDeepStrictEqual } from "node:util";
import { getAddress, type Address, type Hex } from "viem";
import { newId } from "../../core/ids.ts";
import type { PageRequest, Place } from "../../core/paging.ts";
import {
  orderDigest,
  readOrder,
  typedDataOf,
  type Form,
  type OrderKind,
  type Orders,
} from "../../core/orders.ts";
import {
  type MemberList,
  progressOf,
  purposeOf,
  readTeamSignature,
  signersFor,
  writeTeamSignature,
  type Progress,
} from "../../core/teams.ts";
import { ApiError } from "../../errors.ts";
import {
  databaseNow,
  jsonOf,
  placeOf,
  readKeyset,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";
import { lockMembers } from "./team-store.ts";
import type { OrderOwner, SentRequest, SignedOrder } from "./types.ts";

/** Waiting at the same time for a team, and by one member, so that nobody fills the table. */
export const MAX_WAITING = 100;
export const MAX_WAITING_OF_MEMBER = 25;
const MAX_INVITATIONS = 25;

export interface WaitingRow extends Place {
  teamId: string;
  team: Address;
  /** Who sent it. */
  member: Address;
  kind: OrderKind;
  nonce: Hex;
  chainId: number;
  form: Form;
  document: Orders[OrderKind];
  method: string;
  path: string;
  /** Without the order and its signature. */
  body: Record<string, unknown>;
  signature: Hex;
  expiresAt: Date;
  createdAt: Date;
}

const WITH_TEAM = { team: { select: { address: true } } } as const;
const rowOf = (stored: Prisma.WaitingOrderGetPayload<{ include: typeof WITH_TEAM }>) =>
  ({
    ...stored,
    ...placeOf(stored),
    team: stored.team.address,
    chainId: Number(stored.chainId),
  }) as unknown as WaitingRow;

const openAt = (now: Date) => ({ endReason: null, expiresAt: { gt: now } });

export async function listWaiting(
  db: Db,
  teamId: string,
  page: PageRequest,
): Promise<WaitingRow[]> {
  const open = { teamId, ...openAt(await databaseNow(db)) };
  const rows = await readKeyset(page, (where, order) =>
    db.waitingOrder.findMany({ where: { ...open, ...where }, include: WITH_TEAM, ...order }),
  );
  return rows.map(rowOf);
}

/** The newest lists of members that name this account and wait. */
export async function invitationsOf(db: Db, account: Address): Promise<WaitingRow[]> {
  const named = JSON.stringify([{ account: getAddress(account) }]);
  // SQL: by the index of the accounts that a list names.
  const found = await db.$queryRaw<{ id: string }[]>`
    SELECT id FROM waiting_orders
     WHERE kind = 'Members' AND document -> 'members' @> ${named}::jsonb AND end_reason IS NULL AND expires_at > now()
     ORDER BY created_at DESC, id DESC LIMIT ${MAX_INVITATIONS}`;
  const rows = await db.waitingOrder.findMany({
    where: { id: { in: found.map(({ id }) => id) } },
    include: WITH_TEAM,
    orderBy: [{ createdAt: "desc" }, { id: "desc" }],
  });
  return rows.map(rowOf);
}

export async function findWaiting(db: Db, id: string): Promise<WaitingRow | undefined> {
  const where = { id, ...openAt(await databaseNow(db)) };
  const stored = await db.waitingOrder.findFirst({ where, include: WITH_TEAM });
  return stored === null ? undefined : rowOf(stored);
}

/** It was carried out. */
export async function endWaiting(tx: Db, nonce: Hex): Promise<void> {
  await tx.waitingOrder.deleteMany({ where: { nonce } });
}

/** Throws if it was given up: those who signed it no longer want it, and the signatures would still be valid. */
export async function assertNotEnded(tx: Db, nonce: Hex): Promise<void> {
  if ((await tx.waitingOrder.count({ where: { nonce, endReason: { not: null } } })) > 0)
    throw new ApiError("order_used", {
      detail: "This order was given up before it was carried out. Ask for a new one.",
    });
}

/** The order that waits would do something else by now. A request that differs from the one that waits ends nothing. */
export async function endOutdated(tx: Db, owner: OrderOwner, nonce: Hex): Promise<void> {
  if (!owner.member) return;
  const where = { nonce, teamId: owner.id, endReason: null };
  const known = await tx.waitingOrder.findFirst({ where });
  const { method, path, body } = known ?? {};
  if (known && isDeepStrictEqual(cut(owner.member.sent()), { method, path, body }))
    await tx.waitingOrder.updateMany({ where, data: { endReason: "outdated" } });
}

/** By the member who sent it. Others need not sign it. False if it has ended already, or is another member's. */
export async function withdrawWaiting(
  tx: Db,
  { teamId, member }: { teamId: string; member: Address },
  id: string,
): Promise<boolean> {
  const where = { teamId, member, id, ...openAt(await databaseNow(tx)) };
  const { count } = await tx.waitingOrder.updateMany({ where, data: { endReason: "withdrawn" } });
  return count === 1;
}

/** The members changed: each order is asked for again. */
export async function endAllWaiting(tx: Db, teamId: string): Promise<void> {
  const where = { teamId, endReason: null };
  await tx.waitingOrder.updateMany({ where, data: { endReason: "members" } });
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
  const nonce = order.nonce as Hex;
  const expiresAt = new Date(Number(order.deadline) * 1000);
  // SQL: a row lock, so that two members who sign at once are both counted. A change of the members takes it, too.
  await tx.$queryRaw`SELECT 1 FROM owners WHERE id = ${owner.id} FOR NO KEY UPDATE`;
  if ((await lockMembers(tx, owner.id)) !== signed.members)
    throw new ApiError("order_used", {
      detail: "The members of the team changed meanwhile. Ask for a new order.",
    });
  await assertNotEnded(tx, nonce);
  const stored = await tx.waitingOrder.findUnique({ where: { nonce }, include: WITH_TEAM });
  if (stored) {
    const known = rowOf(stored);
    // Anybody may choose a nonce: another order with the same one adds no signature to this one.
    if (known.teamId !== owner.id || digestOf(known) !== signed.digest)
      throw new ApiError("order_used");
    const whole = merged(known.signature, signature);
    await tx.waitingOrder.update({ where: { nonce }, data: { signature: whole } });
    const collected = [...new Set([...signersIn(known.signature), ...signersIn(signature)])];
    return answerOf(known.id, expiresAt, { ...progress, collected });
  }
  await assertRoom(tx, { teamId: owner.id, member: member.address });
  const id = newId("wto");
  const { method, path, body } = cut(member.sent());
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
      body: jsonOf(body),
      signature,
      expiresAt,
      createdAt: await databaseNow(tx),
    },
  });
  return answerOf(id, expiresAt, progress);
}

async function assertRoom(tx: Db, of: { teamId: string; member: Address }): Promise<void> {
  const open = openAt(await databaseNow(tx));
  const ofTeam = await tx.waitingOrder.count({ where: { teamId: of.teamId, ...open } });
  const ofMember = await tx.waitingOrder.count({ where: { ...of, ...open } });
  if (ofTeam < MAX_WAITING && ofMember < MAX_WAITING_OF_MEMBER) return;
  throw new ApiError("conflict", {
    detail: `At most ${MAX_WAITING} orders of a team wait for signatures, and ${MAX_WAITING_OF_MEMBER} of one member. Sign or withdraw some first.`,
  });
}

/** What has to be sent again. The order and the signatures are kept beside it, and nothing else of the request is. */
function cut({ method, path, body }: SentRequest) {
  const {
    authorization,
    order: _order,
    signature: _signature,
    ...rest
  } = (body ?? {}) as Authorized;
  const { order: _signed, signature: _own, ...others } = authorization ?? {};
  return {
    method,
    path: path.split("?", 1)[0] ?? path,
    body: { ...rest, ...(authorization && { authorization: others }) } as Record<string, unknown>,
  };
}

interface Authorized {
  authorization?: { order?: unknown; signature?: unknown };
  order?: unknown;
  signature?: unknown;
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
  const data = { signature };
  return rowOf(await tx.waitingOrder.update({ where: { id }, data, include: WITH_TEAM }));
}

/** The request to send, with the signatures so far. */
export function requestOf({ method, path, body, document: order, signature }: WaitingRow) {
  const { authorization } = body as { authorization?: object };
  const signed = authorization
    ? { ...body, authorization: { ...authorization, order, signature } }
    : { ...body, order, signature };
  return { method, path, body: signed };
}

export const typedDataFor = ({ kind, document, chainId, form }: WaitingRow) =>
  typedDataOf(kind, document, chainId, form);
