// Goal: before a batch is sent, its simulation finds the payments that would fail, those that must go alone, and a token that does nothing; whichever payment burns the gas, the others are still sent.
import t from "tap";
import {
  decodeFunctionData,
  encodeErrorResult,
  encodeFunctionResult,
  multicall3Abi,
  parseAbi,
  type Address,
  type Hex,
} from "viem";
import { NO_ANSWERS, NO_TRANSFERS } from "../../server/core/batcher.ts";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import { ChainRefusal, ChainUnreachable } from "../../server/infra/chain/errors.ts";
import { gasLimitOf, toBatchItem, type BatchItem } from "../../server/plugins/settlement/batch.ts";
import type { EngineContext } from "../../server/plugins/settlement/context.ts";
import {
  isInfrastructureError,
  preflight,
  type PreflightTerms,
} from "../../server/plugins/settlement/preflight.ts";
import type { SettlementRecord } from "../../server/plugins/settlement/types.ts";
import { AUTHORIZATION, recordOf } from "./payment-samples.ts";

const BATCHER: Address = `0x${"ba".repeat(20)}`;
const RELAYER: Address = `0x${"1a".repeat(20)}`;
const FEES = { maxFeeWei: 7n, priorityFeeWei: 3n };
const wordOf = (value: bigint): Hex => `0x${value.toString(16).padStart(64, "0")}`;
const payerOf = (id: number): Address => `0x${String(id).padStart(40, "e")}`;
const nonceOf = (id: number): Hex => wordOf(BigInt(id));

const item = (id: number, over: Partial<SettlementRecord> = {}): BatchItem =>
  toBatchItem(
    recordOf(
      { ...AUTHORIZATION, from: payerOf(id), nonce: nonceOf(id) },
      { id: `pay_${id}`, ...over },
    ),
    300_000n,
  );
const ofAgent = { kind: "spend", agentId: "agt_1" } as const;
const canceling = { ...ofAgent, cancelSignature: `0x${"0b".repeat(65)}` as const };

/** On a node that does not know the receiver's claims, it succeeds and does nothing. */
const ofReceiver = toBatchItem(
  recordOf(
    {
      ...AUTHORIZATION,
      nonce: nonceOf(7),
      terms: { scheme: "channel-settle", claimed: "5" },
    },
    { id: "pay_7" },
  ),
  300_000n,
);

interface Token {
  /** Payments that revert: with this text, or without one. */
  reverts?: Record<number, string | undefined>;
  /** Payments that burn the gas of whatever they are simulated with. */
  burns?: number[];
  /** Payers with contract code. */
  coded?: number[];
  /** Transfers succeed and do nothing. */
  isDead?: boolean;
  /** The state of an authorization cannot be read. */
  isMute?: boolean;
  /** Payments of one payer, of which its balance covers one. */
  shared?: number[];
  /** The first answer of the node. */
  fails?: Error;
  /** The batcher's address has no code any more. */
  isBatcherGone?: boolean;
  hasNoBatcher?: boolean;
}

interface Simulated {
  /** Which payments, in order; "state" and "batcher" for the probes. */
  calls: (number | string)[];
  request: { from?: Hex; gas?: Hex; maxFeePerGas?: Hex; maxPriorityFeePerGas?: Hex };
}

const textData = (text: string): Hex =>
  encodeErrorResult({ abi: parseAbi(["error Error(string)"]), args: [text] });

/** A node with this token. */
function world(token: Token) {
  const simulated: Simulated[] = [];
  let codesRead = 0;
  let probesRead = 0;
  let fails = token.fails;
  const idOf = (data: Hex, target: string): number | string => {
    if (target.toLowerCase() === BATCHER) return "batcher";
    const words = data.slice(10).match(/.{64}/g) ?? [];
    if (words.length === 2) return "state";
    // A transfer has its nonce in the sixth word, a cancellation in the second.
    return Number(BigInt(`0x${words.length >= 9 ? words[5] : words[1]}`));
  };
  const run = (calls: readonly { target: string; callData: Hex }[]) => {
    const done = new Set<number>();
    return calls.map(({ target, callData }) => {
      const id = idOf(callData, target);
      if (id === "batcher")
        return { success: true, returnData: token.isBatcherGone ? ("0x" as const) : NO_ANSWERS };
      if (id === "state") {
        const nonce = Number(BigInt(`0x${callData.slice(74)}`));
        const isUsed = done.has(nonce) && token.isDead !== true;
        return { success: true, returnData: token.isMute ? "0x" : wordOf(isUsed ? 1n : 0n) };
      }
      const number = Number(id);
      if (token.burns?.includes(number)) throw new ChainRefusal("out of gas", -32000, undefined);
      const isPoor =
        token.shared?.includes(number) === true && token.shared.some((other) => done.has(other));
      const reverts = isPoor || (token.reverts !== undefined && number in token.reverts);
      if (!reverts) done.add(number);
      const text = isPoor ? "ERC20: transfer amount exceeds balance" : token.reverts?.[number];
      return {
        success: !reverts,
        returnData: reverts && text !== undefined ? textData(text) : ("0x" as const),
      };
    });
  };
  const call = async (_method: string, [request]: unknown[]): Promise<Hex> => {
    if (fails) {
      const error = fails;
      fails = undefined;
      throw error;
    }
    const { to, data } = request as { to?: string; data: Hex };
    if (to === undefined) {
      codesRead += 1;
      const words = data.slice(74).match(/.{64}/g) ?? [];
      const coded = (token.coded ?? []).map(payerOf);
      return `0x${words.map((word) => wordOf(coded.includes(`0x${word.slice(24)}`) ? 1n : 0n).slice(2)).join("")}`;
    }
    if (to !== MULTICALL3_ADDRESS) {
      const id = idOf(data, to);
      simulated.push({ calls: [`alone ${id}`], request: request as Simulated["request"] });
      const [only] = run([{ target: to, callData: data }]);
      if (only?.success !== true) throw new ChainRefusal("execution reverted", 3, only?.returnData);
      return only.returnData;
    }
    const { args } = decodeFunctionData({ abi: multicall3Abi, data });
    const calls = args[0] as readonly { target: string; callData: Hex }[];
    simulated.push({
      calls: calls.map(({ target, callData }) => idOf(callData, target)),
      request: request as Simulated["request"],
    });
    const result = run(calls) as { success: boolean; returnData: Hex }[];
    return encodeFunctionResult({ abi: multicall3Abi, functionName: "aggregate3", result });
  };
  const batcher = {
    probe: token.hasNoBatcher ? undefined : { target: BATCHER, data: NO_TRANSFERS },
    checkProbe: (answer: { success: boolean; data: Hex } | undefined) => {
      probesRead += 1;
      return answer?.success === true && answer.data === NO_ANSWERS;
    },
  };
  const ctx = { rpc: { call }, batcher } as unknown as EngineContext;
  return { ctx, simulated, reads: () => ({ codesRead, probesRead }) };
}

const idsOf = (items: readonly BatchItem[]): number[] =>
  items.map(({ nonce }) => Number(BigInt(nonce)));

async function check(token: Token, items: BatchItem[], terms: Partial<PreflightTerms> = {}) {
  const { ctx, simulated, reads } = world(token);
  const result = await preflight(ctx, items, { from: RELAYER, fees: FEES, ahead: [], ...terms });
  return {
    good: idsOf(result.good),
    refused: result.refused.map(({ item, text }) => [...idsOf([item]), text]),
    tooOften: idsOf(
      result.refused.flatMap(({ item, hasTooManyFaults }) => (hasTooManyFaults ? [item] : [])),
    ),
    alone: idsOf(result.alone),
    isTokenDead: result.isTokenDead,
    batcher: result.batcher,
    simulated: simulated.map(({ calls }) => calls.join(" ")),
    requests: simulated.map(({ request }) => request),
    ...reads(),
  };
}

interface Expected {
  good?: number[];
  refused?: (number | string | undefined)[][];
  tooOften?: number[];
  alone?: number[];
  isTokenDead?: boolean;
  batcher?: Address | undefined;
  simulated?: string[];
  codesRead?: number;
  probesRead?: number;
}
interface Case {
  what: string;
  token?: Token;
  items: BatchItem[];
  terms?: Partial<PreflightTerms>;
  found: Expected;
}

const NOTHING = { good: [], refused: [], tooOften: [], alone: [], isTokenDead: false };
async function checkAll(
  t: { same: (one: unknown, other: unknown, what: string) => boolean },
  cases: Case[],
) {
  for (const { what, token, items, terms, found } of cases) {
    const all = await check(token ?? {}, items, terms);
    const expected = { ...NOTHING, ...found };
    const names = Object.keys(expected) as (keyof Expected)[];
    t.same(Object.fromEntries(names.map((name) => [name, all[name]])), expected, what);
  }
}

const poor = "ERC20: transfer amount exceeds balance";

t.test("several payments", async (t) => {
  const three = [item(1), item(2), item(3)];
  await checkAll(t, [
    {
      what: "all succeed",
      items: three,
      found: {
        good: [1, 2, 3],
        batcher: BATCHER,
        simulated: ["batcher 1 2 3 state"],
        codesRead: 1,
      },
    },
    {
      what: "without our batcher",
      token: { hasNoBatcher: true },
      items: three,
      found: { good: [1, 2, 3], batcher: undefined, simulated: ["1 2 3 state"] },
    },
    {
      what: "our batcher is gone",
      token: { isBatcherGone: true },
      items: three,
      found: { good: [1, 2, 3], batcher: undefined },
    },
    {
      what: "one would fail, with its reason",
      token: { reverts: { 2: poor } },
      items: three,
      found: { good: [1, 3], refused: [[2, poor]], batcher: BATCHER },
    },
    {
      what: "one would fail without a reason: another may be the cause",
      token: { reverts: { 2: undefined } },
      items: three,
      found: { good: [1, 3], alone: [2] },
    },
    {
      what: "a third party with code goes alone, whatever its simulation shows",
      token: { coded: [1, 2, 3], reverts: { 2: poor, 3: undefined } },
      items: [...three, item(4)],
      found: { good: [4], alone: [1, 2, 3] },
    },
    {
      what: "an agent's wallet is our own key",
      token: { coded: [2] },
      items: [item(1, ofAgent), item(2, ofAgent)],
      found: { good: [1, 2], codesRead: 0 },
    },
    {
      what: "one that goes alone anyway is not asked for its code",
      token: { coded: [1, 2] },
      items: [item(1, { solo: true }), item(2)],
      found: { good: [1], alone: [2] },
    },
    {
      what: "cancellations",
      items: [item(1, canceling), item(2, canceling)],
      found: { good: [1, 2], simulated: ["batcher 1 2"], codesRead: 0 },
    },
    {
      what: "a cancellation, then a transfer: the transfer shows whether the token works",
      token: { isDead: true },
      items: [item(1, canceling), item(2)],
      found: { isTokenDead: true },
    },
    {
      what: "a settle of a channel's receiver, then a transfer: only the transfer shows it",
      items: [ofReceiver, item(2)],
      found: { good: [7, 2], simulated: ["batcher state 2 state"] },
    },
    {
      what: "nothing shows it",
      token: { isDead: true },
      items: [ofReceiver],
      found: { good: [7], simulated: ["state"] },
    },
  ]);
});

t.test("a payment signed more than once is simulated after what is in flight", async (t) => {
  const second = item(1, { id: "pay_8" });
  const ahead = [item(1), item(9)];
  const shared = { ...item(2), from: payerOf(1) };
  await checkAll(t, [
    {
      what: "the balance is spent by then",
      token: { shared: [1, 2] },
      items: [shared],
      terms: { ahead },
      found: { refused: [[2, poor]], simulated: ["1 2 state"] },
    },
    {
      what: "in a batch",
      token: { shared: [1, 2] },
      items: [shared, item(3)],
      terms: { ahead },
      found: { good: [3], refused: [[2, poor]], simulated: ["batcher 1 2 3 state"] },
    },
    {
      what: "other payers' payments do not count",
      items: [item(3), item(4)],
      terms: { ahead: [second] },
      found: { good: [3, 4], simulated: ["batcher 3 4 state"] },
    },
  ]);
  const all = await check({}, [item(1), item(2)], { ahead: [item(2)] });
  const gas = gasLimitOf([item(2), item(1), item(2)]);
  t.same(all.requests, [
    {
      ...all.requests[0],
      from: RELAYER,
      gas: `0x${gas.toString(16)}`,
      maxFeePerGas: "0x7",
      maxPriorityFeePerGas: "0x3",
    },
  ]);
});

t.test("one payment", async (t) => {
  const sent = { ...item(1), sender: RELAYER, solo: true };
  await checkAll(t, [
    {
      what: "succeeds: it says nothing about the batcher",
      items: [item(1)],
      found: { good: [1], simulated: ["1 state"], codesRead: 0, probesRead: 0 },
    },
    {
      what: "succeeds, whatever code the payer has",
      token: { coded: [1] },
      items: [item(1)],
      found: { good: [1], codesRead: 0 },
    },
    {
      what: "as a part of a batch, a payer with code goes alone",
      token: { coded: [1] },
      items: [item(1)],
      terms: { isPart: true },
      found: { alone: [1], codesRead: 1 },
    },
    {
      what: "as a part of a batch",
      items: [item(1)],
      terms: { isPart: true },
      found: { good: [1], simulated: ["1 state"], codesRead: 1 },
    },
    {
      what: "would fail",
      token: { reverts: { 1: poor } },
      items: [item(1)],
      found: { refused: [[1, poor]] },
    },
    {
      what: "would fail without a reason",
      token: { reverts: { 1: undefined } },
      items: [item(1)],
      found: { refused: [[1, undefined]] },
    },
    {
      what: "would fail, and its payer has code: alone, with the whole gas",
      token: { reverts: { 1: poor }, coded: [1] },
      items: [item(1)],
      found: { alone: [1] },
    },
    {
      what: "would fail, with code, and is alone already",
      token: { reverts: { 1: poor }, coded: [1] },
      items: [item(1, { solo: true })],
      found: { refused: [[1, poor]] },
    },
    {
      what: "burns all gas",
      token: { burns: [1] },
      items: [item(1)],
      found: { refused: [[1, undefined]] },
    },
    {
      what: "burns all gas, and its payer has code",
      token: { burns: [1], coded: [1] },
      items: [item(1)],
      found: { alone: [1] },
    },
    {
      what: "to a contract that checks its sender: the call as it is sent",
      items: [sent],
      terms: { ahead: [item(1)] },
      found: { good: [1], simulated: ["alone 1"] },
    },
    {
      what: "the same, as a part of a batch",
      items: [sent],
      terms: { isPart: true },
      found: { good: [1], simulated: ["alone 1"] },
    },
    {
      what: "that contract refuses",
      token: { reverts: { 1: poor } },
      items: [sent],
      found: { refused: [[1, poor]], simulated: ["alone 1"] },
    },
  ]);
  const { requests } = await check({}, [sent]);
  t.match(requests, [
    { from: RELAYER, gas: `0x${gasLimitOf([sent]).toString(16)}`, maxFeePerGas: "0x7" },
  ]);
});

t.test("a token that accepts every call and does nothing", async (t) => {
  await checkAll(t, [
    {
      what: "one payment",
      token: { isDead: true },
      items: [item(1)],
      found: { good: [1], isTokenDead: true },
    },
    {
      what: "several",
      token: { isDead: true, coded: [2] },
      items: [item(1), item(2)],
      found: { alone: [2], isTokenDead: true },
    },
    {
      what: "it returns no state",
      token: { isMute: true },
      items: [item(1), item(2)],
      found: { isTokenDead: true },
    },
    {
      what: "a transfer that fails proves nothing about the token",
      token: { reverts: { 1: poor } },
      items: [item(1), item(2)],
      found: { good: [2], refused: [[1, poor]] },
    },
    {
      what: "a cancellation shows nothing",
      token: { isDead: true },
      items: [item(1, canceling)],
      found: { good: [1], simulated: ["1"] },
    },
    {
      what: "found in the first half of a batch",
      token: { isDead: true, burns: [4] },
      items: [item(3), item(4), item(1, canceling), item(2, canceling)],
      found: { good: [1, 2], refused: [[4, undefined]], isTokenDead: true },
    },
    {
      what: "found in the second half",
      token: { isDead: true, burns: [4] },
      items: [item(1, canceling), item(2, canceling), item(4), item(3)],
      found: { good: [1, 2], refused: [[4, undefined]], isTokenDead: true },
    },
  ]);
});

t.test("a payment that burns the gas of the whole simulation", async (t) => {
  const four = [item(1), item(2), item(3), item(4)];
  await checkAll(t, [
    {
      what: "is found by halves",
      token: { burns: [3] },
      items: four,
      found: {
        good: [1, 2, 4],
        refused: [[3, undefined]],
        batcher: undefined,
      },
    },
    {
      what: "of five, the first half has three",
      token: { burns: [5] },
      items: [...four, item(5)],
      found: {
        good: [1, 2, 3, 4],
        refused: [[5, undefined]],
        simulated: [
          "batcher 1 2 3 4 5 state",
          "batcher 1 2 3 state",
          "batcher 4 5 state",
          "4 state",
          "5 state",
        ],
      },
    },
    {
      what: "the other half is simulated after the first, and after what is in flight",
      token: { burns: [8] },
      items: [item(1), item(8), { ...item(3), from: payerOf(1) }, { ...item(4), from: payerOf(6) }],
      terms: { ahead: [item(6)] },
      found: {
        good: [1, 3, 4],
        refused: [[8, undefined]],
        simulated: [
          "batcher 6 1 8 3 4 state",
          "batcher 1 8 state",
          "batcher 6 1 3 4 state",
          "1 state",
          "8 state",
        ],
      },
    },
    {
      what: "a payer with code is the suspect: the rest is simulated without it",
      token: { burns: [3], coded: [3] },
      items: four,
      found: {
        good: [1, 2, 4],
        alone: [3],
        batcher: BATCHER,
        simulated: ["batcher 1 2 3 4 state", "batcher 1 2 4 state"],
      },
    },
    {
      what: "a payment without a reason is in the first half",
      token: { burns: [4], reverts: { 2: undefined } },
      items: four,
      found: { good: [1, 3], alone: [2], refused: [[4, undefined]] },
    },
    {
      what: "a payment without a reason is in the second half",
      token: { burns: [1], reverts: { 4: undefined } },
      items: four,
      found: { good: [2, 3], alone: [4], refused: [[1, undefined]] },
    },
    {
      what: "all have code",
      token: { burns: [3], coded: [1, 2, 3, 4] },
      items: four,
      found: { alone: [1, 2, 3, 4], simulated: ["batcher 1 2 3 4 state"] },
    },
    {
      what: "the code was not the cause, and a payment without a reason is left",
      token: { burns: [4], coded: [4], reverts: { 2: undefined } },
      items: four,
      found: { good: [1, 3], alone: [2, 4] },
    },
    {
      what: "both halves have our batcher",
      token: { burns: [9], reverts: { 2: poor } },
      items: [...four, item(9), item(5), item(6), item(7)],
      found: {
        good: [1, 3, 4, 5, 6, 7],
        refused: [
          [2, poor],
          [9, undefined],
        ],
      },
    },
  ]);
});

t.test("both halves of a batch succeed: the batcher that both showed", async (t) => {
  const fails = new ChainRefusal("out of gas", -32000, undefined);
  const all = await check({ fails }, [item(1), item(2), item(3), item(4)]);
  t.same([all.good, all.batcher], [[1, 2, 3, 4], BATCHER]);
  const one = await check({ fails }, [item(1), item(2), item(3)]);
  t.same([one.good, one.batcher], [[1, 2, 3], undefined], "a half of one showed none");
});

t.test("what failed too often is not simulated any more", async (t) => {
  const refusedId = (id: number): Expected => ({
    refused: [[id, undefined]],
    tooOften: [id],
    simulated: [],
    codesRead: 0,
  });
  await checkAll(t, [
    { what: "by its own fault", items: [item(1, { faults: 2 })], found: refusedId(1) },
    { what: "given up by nodes", items: [item(1, { givenUp: 4 })], found: refusedId(1) },
    { what: "given up three times", items: [item(1, { givenUp: 3 })], found: { good: [1] } },
    {
      what: "an agent's, given up by nodes",
      items: [item(1, { ...ofAgent, givenUp: 9 })],
      found: { good: [1] },
    },
    {
      what: "one of several",
      items: [item(1, { faults: 2 }), item(2, { givenUp: 4 })],
      found: { good: [1, 2] },
    },
    {
      what: "one that burns the gas of its simulation",
      token: { burns: [1] },
      items: [item(1, { solo: true })],
      found: { refused: [[1, undefined]], tooOften: [] },
    },
  ]);
});

t.test("a failure of the node or of the relayer proves nothing about payments", async (t) => {
  const failures: [Error, boolean][] = [
    [new ChainUnreachable("no RPC endpoint answered"), true],
    [new ChainRefusal("insufficient funds for gas * price + value", -32000, undefined), true],
    [new ChainRefusal("max fee per gas less than block base fee", -32000, undefined), true],
    [new ChainRefusal("execution reverted", 3, "0x"), false],
    [new ChainRefusal("nonce too low", -32000, undefined), false],
  ];
  for (const [fails, isInfrastructure] of failures) {
    t.equal(isInfrastructureError(fails), isInfrastructure, fails.message);
    const found = check({ fails }, [item(1), item(2)]);
    if (isInfrastructure) await t.rejects(found, { message: fails.message });
    else t.same((await found).good, [1, 2], `${fails.message}: tried again in halves`);
  }
});
