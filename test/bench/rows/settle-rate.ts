import type { BenchRow } from "../context.ts";
import { load, settleOutcome, type LoadResult } from "../load.ts";
import { makePayers, signedBodies } from "../signed.ts";

const DURATION_MS = 10_000;
const TARGET = 4;
/** The reference is tried with each, and its best counts. */
const REFERENCE_IN_FLIGHT = [64, 192];
const OUR_IN_FLIGHT = 1_200;

const settledPerSecond = (result: LoadResult): number =>
  ((result.outcomes["success"] ?? 0) / result.elapsedMs) * 1_000;

export const row: BenchRow = {
  name: "sustained settle rate, 2 s blocks",
  target: `>= ${TARGET}x`,
  async run(context) {
    const world = await context.world({ blockTimeSeconds: 2, blockGasLimit: 200_000_000 });
    const { chain } = world;
    const payers = makePayers(200);
    await chain.mint(
      payers.map(({ address }) => address),
      10n ** 12n,
    );
    const measure = (url: string, inFlight: number, count: number): Promise<LoadResult> =>
      load({
        url,
        bodies: signedBodies({ chain, payers, payTo: chain.admin.address, count }),
        inFlight,
        durationMs: DURATION_MS,
        outcomeOf: settleOutcome,
      });
    const ours = await measure(`${world.ours}/api/x402/settle`, OUR_IN_FLIGHT, 12_000);
    const references: LoadResult[] = [];
    for (const inFlight of REFERENCE_IN_FLIGHT)
      references.push(await measure(`${world.reference}/settle`, inFlight, 3_000));
    const best = Math.max(...references.map(settledPerSecond));
    const ratio = settledPerSecond(ours) / best;
    return {
      reference: `${Math.round(best)} /s`,
      ours: `${Math.round(settledPerSecond(ours))} /s`,
      ratio,
      reached: ratio >= TARGET,
      details: { references, ours },
    };
  },
};
