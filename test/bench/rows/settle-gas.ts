// What a payment of a full batch costs in gas, and what of it is for what: to one payee, and to as many as there are payers.
import type { BenchRow } from "../context.ts";
import { load, settleOutcome } from "../load.ts";
import { gasSplit, sentBy, type GasSplit } from "../sent.ts";
import { makePayers, signedBodies } from "../signed.ts";

const COUNT = 100;
/** A process that has just started checks its first payments one by one, and they leave as they come. */
const WARM = 40;

const rowOf = (name: string, payeeCount: number, targetGas: bigint): BenchRow => ({
  name,
  target: `<= ${targetGas}`,
  async run(context) {
    const world = await context.world({ blockTimeSeconds: 1 });
    const { chain } = world;
    const measure = async (
      url: string,
      relayers: readonly `0x${string}`[],
      inFlight: number,
    ): Promise<{ perSettlement: bigint; outcomes: Record<string, number>; split: GasSplit }> => {
      const payers = makePayers(WARM + COUNT);
      const [payTo, ...others] = makePayers(payeeCount).map(({ address }) => address);
      if (!payTo) throw new Error("no payee");
      await chain.mint([...payers.map(({ address }) => address), payTo, ...others], 10n ** 6n);
      const signed = signedBodies({
        chain,
        payers,
        payTo: [payTo, ...others],
        count: WARM + COUNT,
      });
      await load({ url, bodies: signed.slice(0, WARM), inFlight, outcomeOf: settleOutcome });
      const bodies = signed.slice(WARM);
      const fromBlock = (await chain.publicClient.getBlockNumber()) + 1n;
      const { outcomes } = await load({ url, bodies, inFlight, outcomeOf: settleOutcome });
      const sent = await sentBy(chain, relayers, fromBlock);
      const settled = outcomes["success"] ?? 1;
      return {
        perSettlement: sent.gasUsed / BigInt(settled),
        outcomes: { ...outcomes, transactions: sent.transactions },
        split: await gasSplit(chain, sent.hashes, settled),
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
      reached: ours.perSettlement <= targetGas,
      details: {
        reference: { ...reference.outcomes, ...reference.split },
        ours: { ...ours.outcomes, ...ours.split },
      },
    };
  },
});

export const rows: BenchRow[] = [
  rowOf("gas per settlement, 100 payers to one payee", 1, 45_000n),
  rowOf("gas per settlement, 100 payers to 100 payees", COUNT, 49_500n),
];
