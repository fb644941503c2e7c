import type { BenchRow } from "../context.ts";
import { load, settleOutcome } from "../load.ts";
import { sentBy } from "../sent.ts";
import { makePayers, signedBodies } from "../signed.ts";

const COUNT = 100;
const TARGET_GAS = 49_500n;

export const row: BenchRow = {
  name: "gas per settlement, 100 payers to one payee",
  target: `<= ${TARGET_GAS}`,
  async run(context) {
    const world = await context.world({ blockTimeSeconds: 1 });
    const { chain } = world;
    const measure = async (
      url: string,
      relayers: readonly `0x${string}`[],
      inFlight: number,
    ): Promise<{ perSettlement: bigint; outcomes: Record<string, number> }> => {
      const payers = makePayers(COUNT);
      const payTo = makePayers(1)[0]?.address ?? chain.admin.address;
      await chain.mint([...payers.map(({ address }) => address), payTo], 10n ** 6n);
      const bodies = signedBodies({ chain, payers, payTo, count: COUNT });
      const fromBlock = (await chain.publicClient.getBlockNumber()) + 1n;
      const { outcomes } = await load({ url, bodies, inFlight, outcomeOf: settleOutcome });
      const sent = await sentBy(chain, relayers, fromBlock);
      return {
        perSettlement: sent.gasUsed / BigInt(outcomes["success"] ?? 1),
        outcomes: { ...outcomes, transactions: sent.transactions },
      };
    };
    const ours = await measure(`${world.ours}/api/x402/settle`, world.relayerAddresses.ours, COUNT);
    const reference = await measure(
      `${world.reference}/settle`,
      world.relayerAddresses.reference,
      20,
    );
    return {
      reference: `${reference.perSettlement}`,
      ours: `${ours.perSettlement}`,
      ratio: Number(ours.perSettlement) / Number(reference.perSettlement),
      reached: ours.perSettlement <= TARGET_GAS,
      details: { reference: reference.outcomes, ours: ours.outcomes },
    };
  },
};
