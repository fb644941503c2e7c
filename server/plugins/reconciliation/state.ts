/** The state of each network's reconciliation, for owners and operators. */
import type { FastifyInstance } from "fastify";
import type { NetworkFacts } from "../../core/networks.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import { registerGauges } from "../../infra/telemetry.ts";
import type { LedgerState } from "../../schemas/overview.ts";
import { readCursors } from "./cursor-store.ts";
import { MEANING } from "./repair.ts";
import { channelProofsOverdue, countOpenDifferences, readOpenDifferences } from "./store.ts";

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

/**
 * For operators. A difference does not make a replica unready: all replicas see the same one, and taking all of them
 * out of the load balancer makes no payment safer. The readiness text reports it, and an alert fires.
 */
export function showToOperators(app: FastifyInstance): void {
  for (const { network } of app.chains.all)
    app.readiness.add(`ledger:${network.id}`, async () => {
      const [places, counts] = await Promise.all([
        readCursors(app.prisma),
        countOpenDifferences(app.prisma),
      ]);
      const asOf = places.get(network.chainId)?.asOfBlock ?? null;
      if (asOf === null) return "not compared with the chain yet";
      const open = counts.filter(({ chainId }) => chainId === network.chainId);
      if (open.length === 0) return `the ledger matches the chain as of block ${asOf}`;
      const list = open.map(({ kind, count }) => `${count} ${kind}`).join(", ");
      return `degraded: the ledger differs from the chain as of block ${asOf} (${list})`;
    });
  const { metrics, prisma, chains } = app;
  registerGauges(metrics, {
    labelNames: ["network"],
    rows: async () => {
      const places = await readCursors(prisma);
      return chains.all.map(({ network }) => ({
        labels: { network: network.id },
        block: places.get(network.chainId)?.asOfBlock ?? null,
      }));
    },
    gauges: {
      purser_ledger_block: [
        "The last block that was compared with the ledger",
        ({ block }) => (block === null ? undefined : Number(block)),
      ],
    },
  });
  registerGauges(metrics, {
    labelNames: ["network"],
    rows: async () => {
      const overdue = await channelProofsOverdue(app.pool);
      return chains.all.map(({ network }) => ({
        labels: { network: network.id },
        seconds: overdue.find(({ chainId }) => chainId === network.chainId)?.seconds ?? 0,
      }));
    },
    gauges: {
      purser_channel_proof_overdue_seconds: [
        "How long the comparison of a payment channel with the chain is overdue, of the oldest one",
        ({ seconds }) => seconds,
      ],
    },
  });
  registerGauges(metrics, {
    labelNames: ["network", "kind"],
    rows: async () => {
      const counts = await countOpenDifferences(prisma);
      return chains.all.flatMap(({ network: { id: network, chainId } }) => [
        ...Object.keys(MEANING).map((kind) => ({ labels: { network, kind }, count: 0 })),
        ...counts
          .filter((counted) => counted.chainId === chainId)
          .map(({ kind, count }) => ({ labels: { network, kind }, count })),
      ]);
    },
    gauges: {
      purser_ledger_differences: [
        "Open differences between ledger and chain, by kind",
        ({ count }) => count,
      ],
    },
  });
}
