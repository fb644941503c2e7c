import type { BenchRow } from "../context.ts";
import { load, verifyOutcome } from "../load.ts";
import { makePayers, signedBodies } from "../signed.ts";

const IN_FLIGHT = 64;
const TARGET = 8;

export const row: BenchRow = {
  name: "verify, 64 in flight",
  target: `>= ${TARGET}x`,
  async run(context) {
    const world = await context.world();
    const payers = makePayers(IN_FLIGHT);
    await world.chain.mint(
      payers.map(({ address }) => address),
      10n ** 9n,
    );
    const bodies = signedBodies({
      chain: world.chain,
      payers,
      payTo: world.chain.admin.address,
      // More than are remembered: whoever is faster must not be so because it has seen them before.
      count: 12_000,
    });
    const measure = async (url: string) => {
      await load({ url, bodies, inFlight: IN_FLIGHT, durationMs: 1_500, outcomeOf: verifyOutcome });
      return load({
        url,
        bodies,
        inFlight: IN_FLIGHT,
        durationMs: 4_000,
        outcomeOf: verifyOutcome,
      });
    };
    const reference = await measure(`${world.reference}/verify`);
    const ours = await measure(`${world.ours}/api/x402/verify`);
    const ratio = ours.perSecond / reference.perSecond;
    return {
      reference: `${Math.round(reference.perSecond)} /s`,
      ours: `${Math.round(ours.perSecond)} /s`,
      ratio,
      reached: ratio >= TARGET,
      details: { reference, ours },
    };
  },
};
