import type { BenchRow } from "../context.ts";
import { load, settleOutcome } from "../load.ts";
import { sentBy } from "../sent.ts";
import { makePayers, signedBodies } from "../signed.ts";

const COUNT = 500;
const WARM_UP_COUNT = 40;
const WARM_UP_IN_FLIGHT = 20;
const BLOCK_SECONDS = 2;
const P95_TARGET_MS = BLOCK_SECONDS * 1_000 + 500;

/** Nothing is retried on either side: what fails has failed. */
export const row: BenchRow = {
  name: "settle, 2 s blocks, 500 at once",
  target: "all land, <= 5 transactions, no revert, p95 <= 2.5 s",
  async run(context) {
    const world = await context.world({ blockTimeSeconds: BLOCK_SECONDS });
    const { chain } = world;
    const prepare = async (count: number): Promise<string[]> => {
      const payers = makePayers(count);
      await chain.mint(
        payers.map(({ address }) => address),
        10n ** 6n,
      );
      return signedBodies({ chain, payers, payTo: chain.admin.address, count });
    };
    const measure = async (url: string, relayers: readonly `0x${string}`[]) => {
      // Both have served a few payments before, as a server that a burst finds has.
      const few = await prepare(WARM_UP_COUNT);
      await load({ url, bodies: few, inFlight: WARM_UP_IN_FLIGHT, outcomeOf: settleOutcome });
      const bodies = await prepare(COUNT);
      const fromBlock = (await chain.publicClient.getBlockNumber()) + 1n;
      const result = await load({ url, bodies, inFlight: COUNT, outcomeOf: settleOutcome });
      return { ...result, ...(await sentBy(chain, relayers, fromBlock)) };
    };
    const ours = await measure(`${world.ours}/api/x402/settle`, world.relayerAddresses.ours);
    const reference = await measure(`${world.reference}/settle`, world.relayerAddresses.reference);
    const words = (result: typeof ours): string =>
      `${result.outcomes["success"] ?? 0} of ${COUNT} in ${result.transactions} tx, ${result.reverted} reverted, p95 ${(result.p95Ms / 1_000).toFixed(1)} s`;
    return {
      reference: words(reference),
      ours: words(ours),
      reached:
        ours.outcomes["success"] === COUNT &&
        ours.transactions <= COUNT / 100 &&
        ours.reverted === 0 &&
        ours.p95Ms <= P95_TARGET_MS,
      details: {
        reference: { ...reference, gasUsed: String(reference.gasUsed) },
        ours: { ...ours, gasUsed: String(ours.gasUsed) },
      },
    };
  },
};
