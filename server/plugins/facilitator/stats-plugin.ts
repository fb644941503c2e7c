import fp from "fastify-plugin";
import { privateKeyToAddress } from "viem/accounts";
import * as store from "./stats-store.ts";
import { presentStats, type RelayerFacts } from "./stats.ts";
import { Tally } from "./tally.ts";
import { memoFor } from "../../core/kept-answer.ts";
import type { FacilitatorStats } from "../../schemas/facilitator.ts";

declare module "fastify" {
  interface FastifyInstance {
    facilitatorTally: Tally;
    facilitatorStats(): Promise<FacilitatorStats>;
  }
}

const HAND_OVER_MS = 2_000;
/** Anyone may ask: the answer is computed at most this often, whoever asks. */
const STATS_KEPT_MS = 2_000;
const ALL_TIME_KEPT_MS = 30_000;
const RECENT = 20;

export default fp(
  async (app) => {
    const tally = new Tally();
    app.decorate("facilitatorTally", tally);
    const handOver = () =>
      tally
        .handOver((counts) => store.addFacilitatorCounts(app.prisma, counts))
        .catch((err: unknown) => app.log.warn({ err }, "facilitator counts not kept yet"));
    const timer = setInterval(() => void handOver(), HAND_OVER_MS).unref();
    app.addHook("onClose", async () => {
      clearInterval(timer);
      await handOver();
    });

    const allTime = memoFor(ALL_TIME_KEPT_MS, () => store.readAllTime(app.prisma));
    const relayers = app.config.relayerPrivateKeys.map((key) => privateKeyToAddress(key));
    const relayerFacts = (): Promise<RelayerFacts[]> =>
      Promise.all(
        app.chains.all.flatMap(({ network, client }) =>
          relayers.map(async (address) => {
            const [balanceWei, gasPriceWei] = await Promise.all([
              client.getBalance({ address }).catch(() => undefined),
              client.getGasPrice().catch(() => undefined),
            ]);
            return { network, address, balanceWei, gasPriceWei };
          }),
        ),
      );
    const stats = memoFor(STATS_KEPT_MS, async () => {
      await handOver();
      const { prisma } = app;
      const [verified, day, ever, hours, batchSizes, recent, facts] = await Promise.all([
        store.countVerified(prisma),
        store.readDayTotals(prisma),
        allTime(),
        store.readHours(prisma),
        store.readBatchSizes(prisma),
        store.readRecent(prisma, RECENT),
        relayerFacts(),
      ]);
      return presentStats({
        verified,
        day,
        allTime: ever,
        hours,
        batchSizes,
        recent,
        relayers: facts,
      });
    });
    app.decorate("facilitatorStats", stats);
  },
  { name: "facilitator-stats" },
);
