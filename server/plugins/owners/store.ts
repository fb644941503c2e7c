import { getAddress, type Address } from "viem";
import { newId } from "../../core/ids.ts";
import type { SecondWalletOrder } from "../../core/orders.ts";
import { PASSKEYS_CHAIN } from "../../core/passkeys.ts";
import { TEAMS_CHAIN, type Role } from "../../core/teams.ts";
import { databaseNow, secondsAfter, type Db } from "../../infra/db/prisma.ts";
import { ApiError } from "../../errors.ts";

/** Creates the owner at the first sign-in of its address: as a plain key (0), or as a contract on this chain. */
export async function ensureOwner(db: Db, address: Address, contractOn = 0): Promise<string> {
  const createdAt = await databaseNow(db);
  const chainId = BigInt(contractOn);
  const { id } = await db.owner.upsert({
    where: { address_chainId: { address, chainId } },
    create: { id: newId("own"), address, chainId, createdAt },
    // Nothing changes, but with an update Prisma uses one INSERT ... ON CONFLICT, which is safe under concurrency.
    update: { address },
    select: { id: true },
  });
  return id;
}

/** What an owner's account is. */
export function signsWith(chainId: number): "wallet" | "contract" | "passkeys" | "team" {
  if (chainId === TEAMS_CHAIN) return "team";
  if (chainId === PASSKEYS_CHAIN) return "passkeys";
  return chainId === 0 ? "wallet" : "contract";
}

/** The owners of an address: as a plain key (0), and as a contract on each of these chains. */
export async function findOwners(
  db: Db,
  address: Address,
  chainIds: readonly number[],
): Promise<string[]> {
  const owners = await db.owner.findMany({
    where: { address, chainId: { in: chainIds.map(BigInt) } },
    select: { id: true },
    orderBy: { id: "asc" },
  });
  return owners.map(({ id }) => id);
}

/** The order in which an owner last named a recovery wallet; it may name none. */
export const latestSecond = (db: Db, ownerId: string) =>
  db.ownerOrder.findFirst({
    where: { ownerId, kind: "SecondWallet", usedAt: { not: null } },
    orderBy: { usedAt: "desc" },
  });

export interface SecondWallet {
  address: Address;
  chainId: number;
  since: Date;
}

export async function secondWalletOf(db: Db, ownerId: string): Promise<SecondWallet | undefined> {
  const row = await latestSecond(db, ownerId);
  const { second, secondChain } = (row?.document ?? {}) as Partial<SecondWalletOrder>;
  if (!row?.usedAt || second === undefined || BigInt(second) === 0n) return undefined;
  return {
    address: second.toLowerCase() as Address,
    chainId: Number(secondChain),
    since: row.usedAt,
  };
}

/** The owner of this address, by key or contract, who named this wallet as recovery wallet. */
export async function ownerSecondedBy(
  db: Db,
  ownerAddress: Address,
  wallet: { address: Address; chainId: number },
): Promise<{ id: string; address: Address } | undefined> {
  const owners = await db.owner.findMany({
    where: { address: ownerAddress },
    select: { id: true },
  });
  for (const { id } of owners) {
    const second = await secondWalletOf(db, id);
    if (second?.address === wallet.address && second.chainId === wallet.chainId)
      return { id, address: ownerAddress };
  }
  return undefined;
}

const MAX_SHOWN_TEAMS = 100;

/** The teams of a person: those in which it decides first, since anybody can name it as a viewer. */
export async function teamsOf(
  db: Db,
  { address, chainId }: { address: string; chainId: number },
): Promise<{ owner: Address; name: string; role: Role }[]> {
  const rows = await db.teamMember.findMany({
    where: { address, chainId: BigInt(chainId) },
    select: { role: true, team: { select: { address: true, teamName: true } } },
    // By the alphabet: admin, approver, viewer.
    orderBy: [{ role: "asc" }, { team: { teamName: "asc" } }, { teamId: "asc" }],
    take: MAX_SHOWN_TEAMS,
  });
  return rows.map(({ role, team }) => ({
    owner: getAddress(team.address),
    name: team.teamName ?? "",
    role: role as Role,
  }));
}

/** Stores a new sign-in nonce, and deletes some expired ones. */
export async function insertNonce(db: Db, nonce: string, lifeSeconds: number): Promise<void> {
  // SQL: SKIP LOCKED, so that concurrent deletions do not wait for each other.
  await db.$executeRaw`
    DELETE FROM auth_nonces WHERE nonce IN (
      SELECT nonce FROM auth_nonces WHERE expires_at < now() LIMIT 100 FOR UPDATE SKIP LOCKED)`;
  const now = await databaseNow(db);
  await db.authNonce.create({ data: { nonce, expiresAt: secondsAfter(now, lifeSeconds) } });
}

interface TakenNonce {
  fresh: boolean;
  /** The database's clock, which decides all times of the message. */
  now: Date;
}

/** Deletes the nonce: of two requests with the same nonce, exactly one succeeds. */
export async function takeNonce(db: Db, nonce: string): Promise<TakenNonce | undefined> {
  const now = await databaseNow(db);
  const { count } = await db.authNonce.deleteMany({ where: { nonce, expiresAt: { gt: now } } });
  if (count === 1) return { fresh: true, now };
  const { count: stale } = await db.authNonce.deleteMany({ where: { nonce } });
  return stale === 1 ? { fresh: false, now } : undefined;
}

/** Serializes what concerns an owner's agents together. Transactions that only refer to the owner's row are not blocked. */
export async function lockOwner(tx: Db, ownerId: string): Promise<boolean> {
  // SQL: a row lock, which Prisma does not have.
  const rows = await tx.$queryRaw<
    unknown[]
  >`SELECT 1 FROM owners WHERE id = ${ownerId} FOR NO KEY UPDATE`;
  return rows.length === 1;
}

/**
 * Whether the owner stopped everything. A stop waits until this transaction ends, or came before it. Call it before an
 * agent's row is locked, as a stop does.
 */
export async function isOwnerStopped(tx: Db, ownerId: string): Promise<boolean> {
  // SQL: a shared row lock, which Prisma does not have.
  const rows = await tx.$queryRaw<{ isStopped: boolean }[]>`
    SELECT stopped_at IS NOT NULL AS "isStopped" FROM owners WHERE id = ${ownerId} FOR SHARE`;
  return rows[0]?.isStopped ?? false;
}

export async function assertNotStopped(tx: Db, ownerId: string): Promise<void> {
  if (await isOwnerStopped(tx, ownerId)) throw new ApiError("owner_stopped");
}

/** Whether, when and by which wallet everything was stopped, and how many agents that paused. */
export interface Stopped {
  at: Date;
  by: Address;
  agents: number;
}

export async function stoppedOf(db: Db, ownerId: string): Promise<Stopped | null> {
  const owner = await db.owner.findUnique({
    where: { id: ownerId },
    select: { stoppedAt: true, stoppedBy: true },
  });
  if (!owner?.stoppedAt) return null;
  const agents = await db.agent.count({ where: { ownerId, pausedBy: "stop" } });
  return { at: owner.stoppedAt, by: owner.stoppedBy as Address, agents };
}

export const viewStopped = ({ at, by, agents }: Stopped) => ({
  at: at.toISOString(),
  by: getAddress(by),
  agents,
});
