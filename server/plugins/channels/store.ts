/** The channels module's database access. */
import type { Address } from "viem";
import type { Db } from "../../infra/db/prisma.ts";

/** Claims for this receiver that have no outcome yet. */
export async function openClaims(db: Db, chainId: number, receiver: Address): Promise<string[]> {
  const rows = await db.settlement.findMany({
    where: {
      fromAddress: receiver,
      chainId: BigInt(chainId),
      status: { in: ["queued", "submitted"] },
      terms: { path: ["scheme"], equals: "channel-claim" },
    },
    select: { id: true },
  });
  return rows.map(({ id }) => id);
}

/** Whether this wallet is the merchant's. A contract account counts only on its own chain. */
export async function isMerchants(
  db: Db,
  { merchant, receiver, chainId }: { merchant: string; receiver: Address; chainId: number },
): Promise<boolean> {
  const found = await db.owner.count({
    where: { id: merchant, address: receiver, chainId: { in: [0n, BigInt(chainId)] } },
  });
  return found > 0;
}
