// Blocks by hand, and blocks that a reorganisation replaces.
import type { Test } from "tap";
import type { TestChain } from "./chain.ts";

type Chain = Pick<TestChain, "testClient" | "publicClient">;

/** Mines a block every `everyMs`. `pause` returns when no block is under way. */
export function mineEvery(t: Pick<Test, "teardown">, { testClient }: Chain, everyMs: number) {
  let timer: NodeJS.Timeout | undefined;
  let underWay: Promise<unknown> = Promise.resolve();
  const resume = (): void => {
    timer = setInterval(() => {
      underWay = underWay.then(() => testClient.mine({ blocks: 1 })).catch(() => undefined);
    }, everyMs);
  };
  const pause = (): Promise<unknown> => {
    clearInterval(timer);
    return underWay;
  };
  t.teardown(pause);
  resume();
  return { pause, resume };
}

/** Replaces the newest blocks by empty ones. Nothing may mine meanwhile: other blocks would be replaced than the test means. */
export const replaceNewest = ({ testClient }: Chain, depth: number): Promise<unknown> =>
  testClient.request({ method: "anvil_reorg", params: [depth, []] } as never);

/** Replaces every block after this one. */
export async function replaceAfter(chain: Chain, block: bigint): Promise<void> {
  await replaceNewest(chain, Number((await chain.publicClient.getBlockNumber()) - block));
}
