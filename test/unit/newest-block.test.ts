// Goal: the newest block that may exist is the known one, and as many as the network can have made since it was read.
import t from "tap";
import { TIMINGS } from "../../server/core/timings.ts";
import { HeadWatcher } from "../../server/infra/chain/heads.ts";
import type { ChainRpc } from "../../server/infra/chain/rpc.ts";

const BLOCK_MS = 1_000;

t.test("the newest block that may exist", async (t) => {
  let nowMs = 5_000;
  let latest = 7;
  const call = async () => {
    // The response arrives 300 ms after the request.
    nowMs += 300;
    return { number: `0x${latest.toString(16)}`, hash: `0x${latest}`, timestamp: "0x1" };
  };
  const rpc = { call } as unknown as ChainRpc;
  const heads = new HeadWatcher(rpc, BLOCK_MS, [], TIMINGS, () => nowMs);
  t.equal(heads.newestPossible, 0n, "none was seen");
  await heads.refresh();
  t.equal(heads.newestPossible, 8n, "one may have been made since the request");
  for (const [sinceRequestMs, possible] of [
    [BLOCK_MS, 8n],
    [BLOCK_MS + 1, 9n],
    [10 * BLOCK_MS, 17n],
  ] as const) {
    nowMs = 5_000 + sinceRequestMs;
    t.equal(heads.newestPossible, possible, `${sinceRequestMs} ms after the request`);
  }
  t.equal(heads.head?.number, 7n, "the known block is still the one that was read");
  latest = 12;
  await heads.refresh();
  t.equal(heads.newestPossible, 13n, "counted from the later read");
});
