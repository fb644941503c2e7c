/** The rows of teams' members. They help to find a person's teams, and decide nothing that a signature decides. */
import type { Address } from "viem";
import { TEAMS_CHAIN, type MemberList } from "../../core/teams.ts";
import { PASSKEYS_CHAIN } from "../../core/passkeys.ts";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";

/** Writes the members of the newest list, and ends the sessions of those who left. Call it under the team's lock. */
export async function writeMembers(tx: Db, teamId: string, list: MemberList): Promise<void> {
  await tx.owner.update({ where: { id: teamId }, data: { teamName: list.name } });
  await tx.teamMember.deleteMany({ where: { teamId } });
  await tx.teamMember.createMany({
    data: list.members.map(({ name, address, chainId, role }) => ({
      teamId,
      name,
      address,
      chainId: BigInt(chainId),
      role,
    })),
  });
  const isMember = list.members.map(({ address, chainId }) => ({
    address,
    chainId: BigInt(chainId),
  }));
  await tx.session.updateMany({
    where: { teamId, revokedAt: null, owner: { NOT: { OR: isMember } } },
    data: { revokedAt: await databaseNow(tx) },
  });
}

/** Those in which this account decides, which it agreed to: anybody can name it as a viewer. */
export const countTeamsOf = (
  db: Db,
  { address, chainId }: { address: string; chainId: number },
): Promise<number> =>
  db.teamMember.count({ where: { address, chainId: BigInt(chainId), role: { not: "viewer" } } });

/** The team of this address in which this account is a member. */
export async function findTeam(
  db: Db,
  team: Address,
  account: { address: string; chainId: number },
): Promise<{ id: string; address: Address } | undefined> {
  const { address, chainId } = account;
  const row = await db.teamMember.findFirst({
    where: { address, chainId: BigInt(chainId), team: { address: team } },
    select: { teamId: true },
  });
  return row === null ? undefined : { id: row.teamId, address: team };
}

/**
 * The kind of account that an address has here. A plain key, unless only an account with passkeys or only a contract signed in from
 * this address.
 */
export async function chainOf(db: Db, address: Address): Promise<number> {
  const where = { address, chainId: { not: BigInt(TEAMS_CHAIN) } };
  const owners = await db.owner.findMany({ where, select: { chainId: true } });
  const chains = owners.map(({ chainId }) => Number(chainId));
  if (chains.includes(PASSKEYS_CHAIN)) return PASSKEYS_CHAIN;
  return chains.includes(0) ? 0 : (chains[0] ?? 0);
}
