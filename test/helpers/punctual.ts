// Whether blocks come when they are due: on a busy machine some do not, and what they cost is not what is counted.
import type { Test } from "tap";
import { createPublicClient, webSocket, type Hex } from "viem";
import type { TestChain } from "./chain.ts";
import { until } from "./until.ts";

/** Later than the one of the last blocks that came soonest, and a look for it when it was due has missed it. */
const LATE_MS = 15;
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
  return {
    /** Of the block that holds this transaction. */
    async wasPunctual(hash: Hex): Promise<boolean> {
      const receipt = await chain.publicClient.getTransactionReceipt({ hash });
      const number = Number(receipt.blockNumber);
      await until(() => phasesMs.has(number));
      const last = Array.from({ length: REMEMBERED }, (_, back) => phasesMs.get(number - back));
      const soonestMs = Math.min(...last.filter((phase) => phase !== undefined));
      return (phasesMs.get(number) ?? Infinity) - soonestMs <= LATE_MS;
    },
  };
}
