/** The channels module's database access. */
import type { Address } from "viem";
import type { Db } from "../../infra/db/prisma.ts";

/** Claims for this receiver: those without an outcome, and the newest block with one. */
export async function claimsOf(
  db: Db,
  chainId: number,
  receiver: Address,
): Promise<{ open: string[]; newest: bigint | null }> {
  const claims = {
    fromAddress: receiver,
    chainId: BigInt(chainId),
    terms: { path: ["scheme"], equals: "channel-claim" },
  };
  const [open, newest] = await Promise.all([
    db.settlement.findMany({
      where: { ...claims, status: { in: ["queued", "submitted"] } },
      select: { id: true },
    }),
    db.settlement.aggregate({
      where: { ...claims, status: "settled" },
      _max: { blockNumber: true },
    }),
  ]);
  return { open: open.map(({ id }) => id), newest: newest._max.blockNumber };
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
