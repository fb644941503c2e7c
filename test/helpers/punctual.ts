// Whether blocks come when they are due: on a busy machine some do not, and what they cost is not what is counted.
import type { Test } from "tap";
import { createPublicClient, webSocket, type Hex } from "viem";
import type { TestChain } from "./chain.ts";
import { until } from "./until.ts";

/** Later than this, and the first look for it has missed it, or the second as well. */
const FIRST_LOOK_MS = 8;
const SECOND_LOOK_MS = 15;
const REMEMBERED = 16;

export function punctuality(t: Pick<Test, "teardown">, chain: TestChain, blockMs: number) {
  /** How much after its even place in time each block was heard of. */
  const phasesMs = new Map<number, number>();
  const client = createPublicClient({ transport: webSocket(chain.rpcUrl.replace("http", "ws")) });
  const unwatch = client.watchBlockNumber({
    onBlockNumber: (number) =>
      void phasesMs.set(Number(number), performance.now() - Number(number) * blockMs),
  });
  t.teardown(async () => {
    unwatch();
    (await client.transport.getRpcClient()).close();
  });
  /** Of the block that holds this transaction, after the one of the last blocks that came soonest. */
  async function lateMs(hash: Hex): Promise<number> {
    const receipt = await chain.publicClient.getTransactionReceipt({ hash });
    const number = Number(receipt.blockNumber);
    await until(() => phasesMs.has(number));
    const last = Array.from({ length: REMEMBERED }, (_, back) => phasesMs.get(number - back));
    const soonestMs = Math.min(...last.filter((phase) => phase !== undefined));
    return (phasesMs.get(number) ?? Infinity) - soonestMs;
  }
  return {
    /** Whether a look when it was due found it, and whether the one after that did. */
    async howPunctual(hash: Hex) {
      const ms = await lateMs(hash);
      return { byFirstLook: ms <= FIRST_LOOK_MS, bySecondLook: ms <= SECOND_LOOK_MS };
    },
  };
}
