import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyRequest } from "fastify";
import { ApiError } from "../../errors.ts";
import type { PaywallRoute } from "../../../packages/paywall/src/paywall.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { Type, type Static } from "typebox";
import { Value } from "typebox/value";
import { formatAtomic } from "../../core/money.ts";
import { NetworkId, Nullable, PaymentRequiredAnswer, Timestamp } from "../../schemas/common.ts";

const PRICE = "0.001";
const PRICE_PER_BLOCK_ATOMIC = 1_000n;
const MAX_BLOCKS = 50;

const ChainStats = Type.Object({
  network: NetworkId,
  chain: Type.String(),
  height: Type.Integer(),
  hash: Type.String(),
  time: Timestamp,
  gasUsed: Type.String(),
  gasLimit: Type.String(),
  baseFee: Type.String({ description: "Per gas, in wei" }),
  transactions: Type.Integer({ description: "In the latest block" }),
  meanBlockTimeSeconds: Nullable(Type.Number({ description: "Over the last `blocksSampled`" })),
  blocksSampled: Type.Integer(),
});

const DEFAULT_BLOCKS = "10";
const BlockCount = Type.String({
  pattern: "^([1-9]|[1-4][0-9]|50)$",
  description: `Default ${DEFAULT_BLOCKS}`,
});
const BlockRange = Type.Object({
  from: Type.String({ pattern: "^(0|[1-9][0-9]{0,14})$", description: "Height" }),
  count: Type.Optional(BlockCount),
});

const Blocks = Type.Object({
  network: NetworkId,
  blocks: Type.Array(
    Type.Object({
      height: Type.Integer(),
      hash: Type.String(),
      time: Timestamp,
      gasUsed: Type.String(),
      transactions: Type.Integer(),
    }),
    { description: "Absent if the chain has not reached the last of them" },
  ),
});

const EXAMPLE = {
  height: 1204551,
  time: "2026-11-21T05:00:00.000Z",
  gasUsed: "1204311",
  gasLimit: "30000000",
  baseFee: "20000000000",
  transactions: 14,
  meanBlockTimeSeconds: 0.5,
};

/** The paid demo endpoint of the default network: `/api/arc-stats` on Arc. */
const routes: FastifyPluginAsyncTypebox = async (app) => {
  const { network, client } = app.chains.default;
  const path = `/api/${network.slug}-stats`;
  const blocks = {
    latest: () => client.getBlock({ blockTag: "latest" }),
    at: (blockNumber: bigint) => client.getBlock({ blockNumber }),
  };
  // Read before the payment settles, so that a chain that does not respond costs the caller nothing.
  const prepared = new WeakMap<FastifyRequest, Awaited<ReturnType<typeof chainStats>>>();
  const paywall: PaywallRoute = {
    price: PRICE,
    networks: [network.id],
    description: `Live block statistics of ${network.name}`,
    mimeType: "application/json",
    serviceName: "Purser",
    tags: ["data", "chain"],
    discoverable: { example: EXAMPLE },
    prepare: async (request) => {
      const stats = await chainStats(network, blocks).catch((cause: unknown) => {
        throw new ApiError("chain_unavailable", { cause });
      });
      prepared.set(request, stats);
    },
  };

  app.get(
    path,
    {
      config: { auth: "public", paywall, errors: ["chain_unavailable"] },
      schema: {
        tags: ["demo"],
        operationId: "getChainStats",
        summary: `Live block statistics of ${network.name} for ${PRICE} USDC (x402)`,
        description:
          "Without a proof of payment it returns the protocol's 402. With a proof it settles and responds once.",
        response: { 200: ChainStats, 402: PaymentRequiredAnswer },
      },
    },
    async (request) => {
      const stats = prepared.get(request);
      if (!stats) throw new Error("paid, but nothing was prepared");
      return stats;
    },
  );

  // Read before anything is settled, as above.
  const read = new WeakMap<FastifyRequest, Awaited<ReturnType<typeof blocksFrom>>>();
  const priceOfBlocks = (count: bigint): bigint => {
    const price = PRICE_PER_BLOCK_ATOMIC * count;
    // An amount that is too small to settle is free.
    return price < app.config.minPaymentAtomic ? 0n : price;
  };
  const blocksPaywall: PaywallRoute = {
    price: {
      upTo: formatAtomic(PRICE_PER_BLOCK_ATOMIC * BigInt(MAX_BLOCKS)),
      // For payers that cannot sign a maximum (exact, MPP).
      fixed: ({ url }) => {
        const count = new URL(url).searchParams.get("count") ?? DEFAULT_BLOCKS;
        if (!Value.Check(BlockCount, count)) return undefined;
        const price = priceOfBlocks(BigInt(count));
        return price === 0n ? undefined : formatAtomic(price);
      },
    },
    networks: [network.id],
    description: `Blocks of ${network.name}, paid by the block`,
    mimeType: "application/json",
    serviceName: "Purser",
    tags: ["data", "chain"],
    // The response is a range of existing blocks, which never changes, so a repeat within an hour needs no new payment.
    again: { for: "1h" },
    prepare: async (request, _reply, kind) => {
      const { from, count = DEFAULT_BLOCKS } = request.query as Static<typeof BlockRange>;
      const found = await blocksFrom(blocks, BigInt(from), Number(count)).catch(
        (cause: unknown) => {
          throw new ApiError("chain_unavailable", { cause });
        },
      );
      if (kind === "inAdvance" && found.length === 0)
        throw new ApiError("not_found", {
          detail: "The chain has not reached the last of these blocks. Nothing was paid.",
        });
      read.set(request, found);
    },
  };
  app.get(
    `/api/${network.slug}-blocks`,
    {
      config: {
        auth: "public",
        paywall: blocksPaywall,
        errors: ["chain_unavailable", "not_found"],
      },
      schema: {
        tags: ["demo"],
        operationId: "getBlocks",
        summary: `Blocks of ${network.name} for ${formatAtomic(PRICE_PER_BLOCK_ATOMIC)} USDC each (x402, MPP)`,
        description:
          "A payer may sign for the maximum (scheme upto) and is charged only for the returned blocks, or pay for the requested blocks in advance (scheme exact, or MPP). After a payment, the payer may fetch the same URL again for an hour by signing in (sign-in-with-x).",
        querystring: BlockRange,
        response: { 200: Blocks, 402: PaymentRequiredAnswer },
      },
    },
    async (request) => {
      const found = read.get(request);
      if (!found) throw new Error("paid, but nothing was read");
      request.payment?.charge(priceOfBlocks(BigInt(found.length)));
      return { network: network.id, blocks: found };
    },
  );

  app.listings.addBuiltIn({
    key: `chain-stats:${network.id}`,
    name: `${network.name} block statistics`,
    description:
      "Height, time, gas, base fee, transactions and mean block time of the chain, live. The demo endpoint of this service.",
    category: "data",
    url: `${app.config.publicUrl}${path}`,
    method: "GET",
    sample: JSON.stringify(EXAMPLE),
    terms: () =>
      app.cashier.required(paywall, {
        method: "GET",
        url: `${app.config.publicUrl}${path}`,
        path,
        headers: {},
      }),
  });
};

export default routes;

interface StatsBlock {
  number: bigint;
  hash: string;
  /** In seconds. */
  timestamp: bigint;
  gasUsed: bigint;
  gasLimit: bigint;
  baseFeePerGas: bigint | null;
  transactions: readonly unknown[];
}

interface BlockReader {
  latest(): Promise<StatsBlock>;
  at(height: bigint): Promise<StatsBlock>;
}

/** Enough blocks for a fair mean, although several may share a second (on Arc). */
const SAMPLED_BLOCKS = 60n;

/** The paid content: current statistics of the chain. */
async function chainStats(network: NetworkFacts, blocks: BlockReader) {
  const latest = await blocks.latest();
  const span = latest.number < SAMPLED_BLOCKS ? latest.number : SAMPLED_BLOCKS;
  const oldest = span === 0n ? latest : await blocks.at(latest.number - span);
  return {
    network: network.id,
    chain: network.name,
    height: Number(latest.number),
    hash: latest.hash,
    time: new Date(Number(latest.timestamp) * 1000).toISOString(),
    gasUsed: latest.gasUsed.toString(),
    gasLimit: latest.gasLimit.toString(),
    baseFee: (latest.baseFeePerGas ?? 0n).toString(),
    transactions: latest.transactions.length,
    meanBlockTimeSeconds: span === 0n ? null : meanSeconds(oldest, latest, span),
    blocksSampled: Number(span),
  };
}

/** All of them, or none if the chain has not reached the last one. */
async function blocksFrom(chain: BlockReader, from: bigint, count: number) {
  const { number: newest } = await chain.latest();
  // A range that grew after the payment would give blocks away to clients that may repeat the request.
  if (from + BigInt(count) - 1n > newest) return [];
  const heights = Array.from({ length: count }, (_, index) => from + BigInt(index));
  const found = await Promise.all(heights.map((height) => chain.at(height)));
  return found.map(({ number, hash, timestamp, gasUsed, transactions }) => ({
    height: Number(number),
    hash,
    time: new Date(Number(timestamp) * 1000).toISOString(),
    gasUsed: gasUsed.toString(),
    transactions: transactions.length,
  }));
}

/** Whole seconds over whole blocks, to a thousandth; block times are not money. */
function meanSeconds(oldest: StatsBlock, latest: StatsBlock, span: bigint): number {
  return Math.round((Number(latest.timestamp - oldest.timestamp) / Number(span)) * 1000) / 1000;
}
