/** Where the books of each network stand, as an owner is told. */
import type { NetworkFacts } from "../../core/networks.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import type { LedgerState } from "../../schemas/overview.ts";
import { readCursors } from "./cursor-store.ts";
import { MEANING } from "./heal.ts";
import { readOpenDifferences } from "./store.ts";

const NOWHERE = { asOfBlock: null, asOf: null };

export async function readState(
  prisma: PrismaClient,
  networks: readonly Pick<NetworkFacts, "id" | "chainId">[],
  ownerId: string,
): Promise<LedgerState[]> {
  const [places, differences] = await Promise.all([
    readCursors(prisma),
    readOpenDifferences(prisma, ownerId),
  ]);
  return networks.map(({ id, chainId }) => {
    const { asOfBlock, asOf } = places.get(chainId) ?? NOWHERE;
    const mine = differences.filter((difference) => Number(difference.chainId) === chainId);
    return {
      network: id,
      equalsChain: asOfBlock === null ? null : mine.length === 0,
      asOfBlock: asOfBlock === null ? null : String(asOfBlock),
      asOf: asOf?.toISOString() ?? null,
      differences: mine.map(({ kind, agentId, txHash, blockNumber, seenAt }) => ({
        kind,
        meaning: MEANING[kind as keyof typeof MEANING] ?? kind,
        agentId: agentId ?? "",
        txHash,
        blockNumber: blockNumber === null ? null : String(blockNumber),
        seenAt: seenAt.toISOString(),
      })),
    };
  });
}
