// Goal: what is known of a channel is what its chain said as of the newest block: never another channel's, never older, and
// nothing where the chain did not answer as the contract does.
import t from "tap";
import {
  decodeFunctionData,
  encodeAbiParameters,
  encodeFunctionResult,
  multicall3Abi,
  type Hex,
} from "viem";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import { ChainRefusal } from "../../server/infra/chain/errors.ts";
import { ChannelStates } from "../../server/plugins/channels/states.ts";
import { CHANNELS, receiverCall, stateCalls } from "../../server/schemes/batch-settlement/index.ts";
import { hashOfBlock, tag, unreachable } from "./chain-answers.ts";

const BLOCK_MS = 1_000;
const LATEST = "latest";
const idOf = (index: number): Hex => `0x${String(index).padStart(64, "0")}`;
const words = (...values: bigint[]): Hex =>
  encodeAbiParameters(
    values.map(() => ({ type: "uint256" })),
    values,
  );

/** Balance, claimed, pending amount, since when, refund nonce. */
type Facts = readonly [bigint, bigint, bigint, bigint, bigint];
const stateOf = ([balance, totalClaimed, , withdrawRequestedAt, refundNonce]: Facts) => ({
  balance,
  totalClaimed,
  withdrawRequestedAt,
  refundNonce,
});

interface Asked {
  at: unknown;
  calls: number;
}

function scene() {
  const asked: Asked[] = [];
  const pauses: number[] = [];
  const single: unknown[] = [];
  const answers = new Map<Hex, Hex>();
  /** Instead of the truth, for the next requests. */
  const failures: Error[] = [];
  const world = { head: 7n as bigint | undefined, ms: 50_000 };
  const put = (id: Hex, [balance, claimed, pending, since, nonce]: Facts) => {
    const replies = [words(balance, claimed), words(pending, since), words(nonce)];
    for (const [index, { data }] of stateCalls(id).entries())
      answers.set(data, replies[index] ?? "0x");
  };
  const rpc = {
    async call<T>(_method: string, params: unknown[]): Promise<T> {
      const [call, at] = params as [{ to: string; data: Hex }, unknown];
      if (call.to !== MULTICALL3_ADDRESS) {
        single.push(call);
        const failure = failures.shift();
        if (failure) throw failure;
        return "0x1234" as T;
      }
      const { args } = decodeFunctionData({ abi: multicall3Abi, data: call.data });
      const inner = args[0] as readonly { target: string; callData: Hex }[];
      asked.push({ at, calls: inner.length });
      const failure = failures.shift();
      if (failure) throw failure;
      const result = inner.map(({ target, callData }) => ({
        success: target.toLowerCase() === CHANNELS.toLowerCase(),
        returnData: answers.get(callData) ?? ("0x" as const),
      }));
      return encodeFunctionResult({ abi: multicall3Abi, functionName: "aggregate3", result }) as T;
    },
  };
  const heads = {
    get head() {
      const { head: number } = world;
      return number === undefined
        ? undefined
        : { number, hash: hashOfBlock(number), timestampSeconds: 0n, seenAtMs: 0 };
    },
  };
  const states = new ChannelStates({
    rpc,
    heads: heads as never,
    blockTimeMs: BLOCK_MS,
    pause: async (ms) => void pauses.push(ms),
  });
  return { states, asked, pauses, single, answers, failures, world, put };
}

t.test("the newest state is read once for a block, and again with the next", async (t) => {
  const { states, asked, world, put } = scene();
  t.intercept(performance, "now", { value: () => world.ms });
  const [id, other] = [idOf(1), idOf(2)];
  const first: Facts = [900n, 100n, 0n, 0n, 3n];
  put(id, first);
  put(other, [5n, 0n, 0n, 0n, 0n]);
  t.same(await states.newest(id), stateOf(first));
  t.same(asked, [{ at: LATEST, calls: 3 }]);

  const claimed: Facts = [900n, 700n, 4n, 12n, 3n];
  put(id, claimed);
  t.same(await states.newest(id), stateOf(first), "no newer block, so nothing has changed");
  t.match(await states.newest(other), { balance: 5n }, "another channel's is its own");
  t.equal(asked.length, 2);

  world.head = 8n;
  t.same(await states.newest(id), stateOf(claimed), "a voucher below it can no longer be claimed");
  t.equal(asked.length, 3);

  const refunded: Facts = [700n, 700n, 0n, 0n, 4n];
  put(id, refunded);
  world.ms += BLOCK_MS - 1;
  t.same(await states.newest(id), stateOf(claimed));
  world.ms += 1;
  t.same(await states.newest(id), stateOf(refunded), "the next block is due and may not be seen");
  world.ms += BLOCK_MS - 1;
  await states.newest(id);
  t.equal(asked.length, 4, "known again from then on");
});

t.test("what was read while no block was known, or not at all, is not kept", async (t) => {
  const { states, asked, world, put, answers } = scene();
  t.intercept(performance, "now", { value: () => world.ms });
  const id = idOf(1);
  const facts: Facts = [900n, 100n, 0n, 0n, 3n];
  t.equal(await states.newest(id), undefined, "the contract does not answer");
  put(id, facts);
  t.same(await states.newest(id), stateOf(facts), "then it does, in the same block");
  t.equal(asked.length, 2);

  world.head = undefined;
  put(id, [800n, 100n, 0n, 0n, 4n]);
  t.match(await states.newest(id), { balance: 800n });
  put(id, [700n, 100n, 0n, 0n, 5n]);
  t.match(await states.newest(id), { balance: 700n }, "without blocks each request reads");
  answers.clear();
  t.equal(await states.newest(id), undefined);
});

t.test("an endpoint that fails is no state", async (t) => {
  const { states, failures, put } = scene();
  put(idOf(1), [1n, 0n, 0n, 0n, 0n]);
  failures.push(unreachable());
  await t.rejects(states.newest(idOf(1)));
  t.match(await states.newest(idOf(1)), { balance: 1n }, "and is asked again");
});

t.test("channels that are read together get each its own state", async (t) => {
  const { states, asked, put } = scene();
  const ids = [1, 2, 3, 4, 5].map(idOf);
  const facts = ids.map((_, index): Facts => {
    const step = BigInt(index) * 10n;
    return [step + 5n, step + 1n, step + 2n, step + 3n, step + 4n];
  });
  const unread = 2;
  for (const [index, id] of ids.entries()) if (index !== unread) put(id, facts[index] as Facts);
  const expected = facts.map((one, index) => (index === unread ? undefined : stateOf(one)));
  t.same(await states.all(ids), expected);
  t.same(asked, [{ at: LATEST, calls: 15 }], "in one call");
  t.same(await states.all([...ids].reverse()), [...expected].reverse());
  t.equal(asked.length, 2, "a receiver's order is decided by the state of now");
  t.same(await states.all([]), []);
});

t.test("the state after our own transaction is that of its block", async (t) => {
  const { states, asked, pauses, failures, put } = scene();
  const id = idOf(1);
  const facts: Facts = [900n, 100n, 0n, 0n, 3n];
  put(id, facts);
  t.same(await states.at(id, 300n), stateOf(facts));
  t.same(asked, [{ at: tag(300n), calls: 3 }]);
  t.same(pauses, []);
  const late = () => new ChainRefusal("header not found", -32000, undefined);
  failures.push(late(), late(), late());
  t.same(await states.at(id, 301n), stateOf(facts), "an endpoint that is behind gets the block");
  t.equal(asked.length, 5);
  t.same(pauses, [250, 250, 250], "within a second");
  failures.push(late(), late(), late(), late());
  t.equal(await states.at(id, 302n), undefined, "what happened is not less certain for it");
  t.equal(asked.length, 9);
  t.equal(pauses.length, 6);
  failures.push(late(), late());
  t.equal(await states.at(idOf(2), 303n), undefined, "no answer of the contract");
});

t.test("what is claimed for a receiver and what is settled", async (t) => {
  const { states, asked, answers } = scene();
  const [receiver, token] = [`0x${"11".repeat(20)}`, `0x${"22".repeat(20)}`] as const;
  t.equal(await states.receiver(receiver, token, LATEST), undefined);
  answers.set(receiverCall(receiver, token).data, words(800n, 300n));
  t.same(await states.receiver(receiver, token, LATEST), { claimed: 800n, settled: 300n });
  t.same(await states.receiver(receiver, token, 300n), { claimed: 800n, settled: 300n });
  t.equal(await states.receiver(token, receiver, LATEST), undefined);
  t.same(
    asked.map(({ at }) => at),
    [LATEST, LATEST, tag(300n), LATEST],
  );
});

t.test("what a call would do now", async (t) => {
  const { states, single, failures } = scene();
  const call = { target: CHANNELS.toLowerCase(), data: "0xabcd" as const };
  t.same(await states.simulate(call), { success: true, data: "0x1234" });
  t.same(single, [
    { from: MULTICALL3_ADDRESS, to: call.target, data: call.data, gas: tag(10_000_000n) },
  ]);
  failures.push(new ChainRefusal("execution reverted", 3, "0x8baa579f"));
  t.same(await states.simulate(call), { success: false, data: "0x8baa579f" });
  failures.push(unreachable());
  await t.rejects(states.simulate(call), "a silent chain refuses nothing");
});
