import type { Address, Hex } from "viem";
import type { OrderKind, Orders } from "../../core/orders.ts";
import type { SignedByPasskey } from "../../core/passkeys.ts";
import type { Identity, ListsOf, StoredOrder } from "./signatures.ts";
import { databaseNow, jsonOf, jsonOrNull, type Db } from "../../infra/db/prisma.ts";

interface OrderRow<K extends OrderKind = OrderKind> {
  nonce: Hex;
  kind: K;
  ownerId: string;
  agentId: string;
  /** The version of a policy. */
  version: number | null;
  chainId: number;
  document: Orders[K];
  digest: Hex;
  deadlineSeconds: bigint;
}

/** The sealed wallet of an agent that is to be created; base64, because it is stored as JSON. */
export interface PreparedWallet {
  address: Address;
  kid: string;
  wrappedDataKey: string;
  ciphertext: string;
}

const dataOf = ({ chainId, deadlineSeconds, document, ...row }: OrderRow) => ({
  ...row,
  approvalId: "approvalId" in document ? document.approvalId : null,
  chainId: BigInt(chainId),
  deadline: deadlineSeconds,
  document: jsonOf(document),
});

/** The most unused orders per owner, so that repeated requests do not fill the table. The oldest are deleted. */
const MAX_PREPARED = 20;

/** Signed documents and audit entries are kept forever, so an owner may cause this many bytes of them per day. */
export const KEPT_BYTES_PER_DAY = 32 * 1024 * 1024;

/**
 * Takes bytes from the owner's daily quota, or only checks it. Returns 0, or the seconds until there is enough, in
 * which case nothing was taken.
 */
export async function takeQuota(
  tx: Db,
  ownerId: string,
  { bytes, dryRun }: { bytes: number; dryRun: boolean },
): Promise<number> {
  // SQL: a decision under the row lock of the owner's quota, for all replicas; by the database's clock.
  const rows = await tx.$queryRaw<{ seconds: number | null }[]>`
    SELECT extract(epoch FROM purser_quota_take(${ownerId}, ${BigInt(bytes)}, ${BigInt(KEPT_BYTES_PER_DAY)}, ${dryRun})
                              - clock_timestamp())::float8 AS seconds`;
  const seconds = rows[0]?.seconds ?? null;
  return seconds === null ? 0 : Math.max(1, Math.ceil(seconds));
}

/**
 * Kept until its deadline because of the wallet in it. The document is not stored: the request that uses the order
 * contains it.
 */
export async function insertPrepared(tx: Db, row: OrderRow, wallet: PreparedWallet): Promise<void> {
  const older = await tx.ownerOrder.findMany({
    where: {
      ownerId: row.ownerId,
      usedAt: null,
      nonce: { notIn: await waitingNonces(tx, row.ownerId) },
    },
    orderBy: { createdAt: "desc" },
    skip: MAX_PREPARED - 1,
    select: { nonce: true },
  });
  if (older.length > 0)
    await tx.ownerOrder.deleteMany({
      where: { nonce: { in: older.map(({ nonce }) => nonce) }, usedAt: null },
    });
  await tx.ownerOrder.create({
    data: {
      ...dataOf(row),
      document: {},
      sealed: jsonOf(wallet),
      createdAt: await databaseNow(tx),
    },
  });
}

/** Orders of a team that some members have signed: more drafts do not delete their wallets. */
async function waitingNonces(tx: Db, teamId: string): Promise<string[]> {
  const rows = await tx.waitingOrder.findMany({ where: { teamId }, select: { nonce: true } });
  return rows.map(({ nonce }) => nonce);
}

interface FoundOrder {
  agentId: string;
  ownerId: string;
  isUsed: boolean;
  wallet: PreparedWallet | null;
}

export async function findOrder(db: Db, nonce: Hex): Promise<FoundOrder | undefined> {
  const row = await db.ownerOrder.findUnique({
    where: { nonce },
    select: { agentId: true, ownerId: true, usedAt: true, sealed: true },
  });
  if (row === null) return undefined;
  const { usedAt, sealed, ...rest } = row;
  return { ...rest, isUsed: usedAt !== null, wallet: sealed as unknown as PreparedWallet | null };
}

/** False if the order was used before: the nonce is unique, and only one transaction can take a prepared row. */
export async function insertUsed(tx: Db, row: OrderRow, signature: Hex): Promise<boolean> {
  const usedAt = await databaseNow(tx);
  const signed = { signature: Uint8Array.from(Buffer.from(signature.slice(2), "hex")), usedAt };
  const { count } = await tx.ownerOrder.updateMany({
    where: { nonce: row.nonce, usedAt: null },
    data: { ...dataOf(row), ...signed, sealed: jsonOrNull(null) },
  });
  if (count === 1) return true;
  // An existing nonce is skipped, which does not abort the transaction.
  const made = await tx.ownerOrder.createMany({
    data: [{ ...dataOf(row), ...signed, createdAt: usedAt }],
    skipDuplicates: true,
  });
  return made.count === 1;
}

/** The orders that list an owner's passkeys, or a team's members: how many there are, and those after the first `known`. */
const signedLists =
  (kind: "Passkeys" | "Members") =>
  (db: Db): ListsOf =>
  async ({ address, chainId }, known) => {
    const where = {
      owner: { address, chainId: BigInt(chainId) },
      kind,
      usedAt: { not: null },
    };
    const [count, rows] = await Promise.all([
      db.ownerOrder.count({ where }),
      db.ownerOrder.findMany({ where, orderBy: { usedAt: "asc" }, skip: known }),
    ]);
    // A list that was added between the two reads counts. Fewer than are known means that rows were removed.
    const isCounted = rows.length === 0 || count >= known + rows.length;
    return { count: isCounted ? count : known + rows.length, next: rows.map(storedOf) };
  };
export const passkeyLists = signedLists("Passkeys");
export const memberLists = signedLists("Members");

const storedOf = (row: {
  document: unknown;
  digest: string;
  signature: Uint8Array | null;
  chainId: bigint;
}): StoredOrder => ({
  document: row.document,
  digest: row.digest as Hex,
  signature: `0x${Buffer.from(row.signature ?? []).toString("hex")}`,
  chainId: Number(row.chainId),
});

/**
 * Notes that a passkey has signed. False if its device has counted fewer signatures than before: then there are two devices
 * with this key, and one of them is a copy. Most devices always report 0.
 */
export async function countPasskeyUse(
  tx: Db,
  ownerId: string,
  { key, count }: SignedByPasskey,
  isAgain = false,
): Promise<boolean> {
  const counted = isAgain ? { lte: count } : { lt: count };
  const changed = await tx.passkey.updateMany({
    where: { ...key, ownerId, OR: [{ signCount: counted }, { signCount: 0 }] },
    data: { signCount: count, usedAt: await databaseNow(tx) },
  });
  return changed.count === 1;
}

/** The orders in which an owner named a payout address. */
export async function payoutOrders(db: Db, { address, chainId }: Identity): Promise<StoredOrder[]> {
  const rows = await db.ownerOrder.findMany({
    where: {
      owner: { address, chainId: BigInt(chainId) },
      kind: "PayoutAddress",
      usedAt: { not: null },
    },
  });
  return rows.map(storedOf);
}

/** The version of the policy in force; 0 before the first one. */
export async function latestVersion(db: Db, agentId: string): Promise<number> {
  const found = await db.ownerOrder.aggregate({
    where: { agentId, kind: "AgentPolicy", usedAt: { not: null } },
    _max: { version: true },
  });
  return found._max.version ?? 0;
}
