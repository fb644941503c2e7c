import type { BenchRow } from "../context.ts";
import { load, verifyOutcome } from "../load.ts";
import { makePayers, signedBodies } from "../signed.ts";

const TARGET = 0.45;

export const row: BenchRow = {
  name: "verify p50, RPC delayed 30 ms, 1 in flight",
  target: `<= ${TARGET}x`,
  async run(context) {
    const world = await context.world({ rpcDelayMs: 30 });
    const payers = makePayers(8);
    await world.chain.mint(
      payers.map(({ address }) => address),
      10n ** 9n,
    );
    const bodies = signedBodies({
      chain: world.chain,
      payers,
      payTo: world.chain.admin.address,
      count: 200,
    });
    const measure = async (url: string) => {
      await load({ url, bodies, inFlight: 1, durationMs: 1_000, outcomeOf: verifyOutcome });
      return load({ url, bodies, inFlight: 1, durationMs: 3_000, outcomeOf: verifyOutcome });
    };
    const reference = await measure(`${world.reference}/verify`);
    const ours = await measure(`${world.ours}/api/x402/verify`);
    const ratio = ours.p50Ms / reference.p50Ms;
    return {
      reference: `${reference.p50Ms.toFixed(1)} ms`,
      ours: `${ours.p50Ms.toFixed(1)} ms`,
      ratio,
      reached: ratio <= TARGET,
      details: { reference, ours },
    };
  },
};
