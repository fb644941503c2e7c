/** The rows of teams' members. They help to find a person's teams, and decide nothing that a signature decides. */
import type { Address } from "viem";
import type { MemberList } from "../../core/teams.ts";
import { PASSKEYS_CHAIN } from "../../core/passkeys.ts";
import type { Db } from "../../infra/db/prisma.ts";

/** Writes the members of the newest list. Call it under the team's lock. */
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
}

export const countTeamsOf = (
  db: Db,
  { address, chainId }: { address: string; chainId: number },
): Promise<number> => db.teamMember.count({ where: { address, chainId: BigInt(chainId) } });

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

/** The kind of account that an address has here: that of an owner with passkeys, or else a plain key. */
export async function chainOf(db: Db, address: Address): Promise<number> {
  const where = { address_chainId: { address, chainId: BigInt(PASSKEYS_CHAIN) } };
  return (await db.owner.findUnique({ where, select: { id: true } })) ? PASSKEYS_CHAIN : 0;
}
