// Goal: what a mined transaction cost, which of its payments failed by their own fault, and who took a nonce of ours are read from blocks and states, and never guessed.
import t from "tap";
import type { Hex } from "viem";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import type { RpcReceipt } from "../../server/infra/chain/contracts.ts";
import { toBatchItem } from "../../server/plugins/settlement/batch.ts";
import type {
  CarriedItem,
  StoredAttempt,
  StoredTransaction,
} from "../../server/plugins/settlement/lane-store.ts";
import {
  attributeFailure,
  gasCostOf,
  isReceiptOf,
  measure,
  proveByTransaction,
  takenByOther,
  type NonceSearch,
} from "../../server/plugins/settlement/receipts.ts";
import type { ProvenOutcome } from "../../server/plugins/settlement/types.ts";
import { AUTHORIZATION_USED, TRANSFER } from "../../server/schemes/exact-eip3009/onchain.ts";
import {
  contextOf,
  hashOfBlock,
  tag,
  unreachable,
  type Lie,
  type Surroundings,
  type World,
} from "./chain-answers.ts";
import { AUTHORIZATION, recordOf } from "./payment-samples.ts";

const HASH: Hex = `0x${"fe".repeat(32)}`;
const OTHER: Hex = `0x${"0d".repeat(32)}`;
const LANE: Hex = `0x${"1a".repeat(20)}`;
const BATCHER: Hex = `0x${"ba".repeat(20)}`;
const wordOf = (value: bigint): Hex => `0x${value.toString(16).padStart(64, "0")}`;
const payerOf = (id: bigint): Hex => `0x${id.toString(16).padStart(40, "e")}`;

const receiptOf = (over: Partial<RpcReceipt> = {}): RpcReceipt => ({
  transactionHash: HASH,
  blockNumber: "0x3c",
  blockHash: hashOfBlock(60n),
  status: "0x1",
  gasUsed: tag(50_000n),
  logs: [],
  ...over,
});
const attempt = (hash: Hex, maxFeeWei = 5n): StoredAttempt => ({
  hash,
  attempt: 1,
  purpose: "work",
  answer: undefined,
  raw: "0x",
  maxFeeWei,
  priorityFeeWei: 1n,
});

t.test("which answers of a send are a receipt", async (t) => {
  const whole = { ...receiptOf({ blockHash: `0x${"0b".repeat(32)}` }) };
  const loud = HASH.toUpperCase().replace("0X", "0x");
  const cases: [string, unknown, boolean][] = [
    ["a receipt", whole, true],
    ["in capitals", { ...whole, transactionHash: loud }, true],
    ["a hash", HASH, false],
    ["nothing", null, false],
    ["no answer", undefined, false],
    ["another transaction's", { ...whole, transactionHash: OTHER }, false],
    ["without a hash", { ...whole, transactionHash: undefined }, false],
    ["the hash in a list", { ...whole, transactionHash: [HASH] }, false],
    ["of a pending block", { ...whole, blockHash: null }, false],
    ["with a block hash of zeros", { ...whole, blockHash: `0x${"0".repeat(64)}` }, false],
    ["with a short block hash", { ...whole, blockHash: "0x0b" }, false],
    ["without a block number", { ...whole, blockNumber: null }, false],
    ["with a number that is no text", { ...whole, blockNumber: 60 }, false],
    ["with a word for a number", { ...whole, blockNumber: "latest" }, false],
    ["without logs", { ...whole, logs: undefined }, false],
  ];
  for (const [what, answer, isOne] of cases) {
    t.equal(isReceiptOf(answer, HASH), isOne, what);
    t.equal(isReceiptOf(answer, loud), isOne, what);
  }
});

t.test("the cost of a transaction", async (t) => {
  const network = { network: { nativePriceAtomic: 1_000_000n } } as Parameters<typeof gasCostOf>[0];
  const cost = (receipt: Partial<RpcReceipt>, attempts = [attempt(OTHER, 9n), attempt(HASH)]) =>
    gasCostOf(network, { attempts }, receiptOf(receipt));
  t.equal(cost({ effectiveGasPrice: "0x2" }), 100_000n, "gas at the price that was paid");
  t.equal(cost({}), 250_000n, "without a price: at most what this attempt offered");
  t.equal(cost({}, [attempt(OTHER)]), 0n, "an attempt that is not known");
  t.equal(cost({ effectiveGasPrice: "0x2", l1Fee: "0x7" }), 100_007n, "and its data");
  t.equal(cost({ effectiveGasPrice: "0x2", l1Fee: null }), 100_000n);
});

t.test("what is measured of a transaction, once", async (t) => {
  const [small, large, failed] = [
    recordOf(AUTHORIZATION, { kind: "withdrawal", createdAt: new Date(Date.now() - 5_000) }),
    recordOf({ ...AUTHORIZATION, nonce: wordOf(2n), value: 3_000_000n }),
    recordOf({ ...AUTHORIZATION, nonce: wordOf(3n) }),
  ] as const;
  const batch = [small, large, failed].map((record) => toBatchItem(record, 300_000n));
  const outcome = (of: typeof small, more: object): ProvenOutcome => {
    const { from, asset, nonce } = of.authorization;
    return { from, asset, nonce, isFinal: true, status: "settled", ...more };
  };
  const outcomes = [
    outcome(small, {}),
    outcome(large, { amount: "2000000" }),
    outcome(failed, { status: "failed" }),
  ];
  const receipt = receiptOf({ effectiveGasPrice: tag(10n ** 12n) });
  const measured = (
    list: ProvenOutcome[],
    items: CarriedItem[] = batch,
    carried: typeof batch | null = batch,
  ) => {
    const { ctx, noted } = contextOf(
      {},
      { network: { nativePriceAtomic: 1_000_000n } as Surroundings["network"] },
    );
    measure(ctx, { items, attempts: [], batch: carried ?? undefined }, receipt, list);
    return noted;
  };
  const { metrics, warnings } = measured(outcomes);
  t.same(
    metrics.filter(([name]) => name !== "timeToResult"),
    [
      ["settled", 3, 50_000n],
      ["paid", "withdrawal", 0.05],
      ["moved", "withdrawal", 0.001],
      ["moved", "facilitated", 2],
      ["finished", "settled", 2],
      ["finished", "failed", 1],
    ],
  );
  const times = metrics.flatMap(([name, ms]) => (name === "timeToResult" ? [Number(ms)] : []));
  t.equal(times.length, 3);
  t.ok((times[0] ?? 0) >= 5_000 && (times[0] ?? 0) < 600_000, "since it was accepted");
  t.same(warnings, [], "each of them has an outcome");
  const partly = measured(outcomes.slice(0, 2));
  t.match(partly.warnings, [[{ hash: HASH, carried: 3, proven: 2 }, /tried again/]]);
  const taken = measured(outcomes, [], null);
  t.same(
    taken.metrics,
    [
      ["settled", 3, 50_000n],
      ["paid", "none", 0.05],
      ["finished", "settled", 2],
      ["finished", "failed", 1],
    ],
    "one taken over from another process",
  );
  t.same(taken.warnings, []);
});

t.test("whose fault a payment without effect is", async (t) => {
  const items: CarriedItem[] = [1n, 2n, 3n].map((id) => ({
    ...AUTHORIZATION,
    from: payerOf(id),
    nonce: wordOf(id),
    action: "transfer" as const,
  }));
  const proven = (ids: bigint[]): ProvenOutcome[] =>
    ids.map((id) => ({
      from: payerOf(id),
      asset: AUTHORIZATION.asset,
      nonce: wordOf(id),
      status: "settled",
      isFinal: false,
    }));
  const tx = (over: Partial<StoredTransaction>): StoredTransaction => ({
    nonce: 1n,
    to: BATCHER,
    calldata: "0x",
    gasLimit: 100_000n,
    attempts: [],
    items,
    sentBlock: 1n,
    included: undefined,
    ...over,
  });
  const all = [wordOf(1n), wordOf(2n), wordOf(3n)];
  const coded = [payerOf(2n)];
  const burnt = { gasUsed: tag(95_001n) };
  const none = { faults: [], offenders: [] };
  const cases: {
    what: string;
    world?: World;
    tx?: Partial<StoredTransaction>;
    receipt?: Partial<RpcReceipt>;
    proven?: bigint[];
    found: { faults: string[]; offenders: string[] };
  }[] = [
    { what: "all had an effect", proven: [1n, 2n, 3n], found: none },
    {
      what: "used by others meanwhile",
      proven: [1n],
      world: { ended: { [wordOf(2n)]: 60n, [wordOf(3n)]: 50n } },
      found: none,
    },
    {
      what: "used by others in a later block",
      proven: [1n, 2n],
      world: { ended: { [wordOf(3n)]: 61n } },
      found: { faults: [wordOf(3n)], offenders: [] },
    },
    {
      what: "the token returns no state",
      proven: [1n],
      world: { ended: { [wordOf(2n)]: "mute", [wordOf(3n)]: "mute" } },
      found: none,
    },
    {
      what: "some had no effect: a payer with code is not batched any more",
      proven: [1n],
      world: { coded },
      found: { faults: [wordOf(2n), wordOf(3n)], offenders: coded },
    },
    {
      what: "through Multicall3, which bounds no call: nor are the others",
      proven: [1n],
      world: { coded },
      tx: { to: MULTICALL3_ADDRESS.toUpperCase().replace("0X", "0x") },
      found: { faults: [wordOf(2n), wordOf(3n)], offenders: [payerOf(2n), payerOf(3n)] },
    },
    { what: "nothing had an effect: the token", world: { coded }, found: none },
    {
      what: "one of them was used by others, the rest had no effect",
      world: { ended: { [wordOf(1n)]: 60n } },
      found: { faults: [wordOf(2n), wordOf(3n)], offenders: [] },
    },
    {
      what: "the gas was burnt: by the payer with code",
      world: { coded },
      receipt: burnt,
      found: { faults: [wordOf(2n)], offenders: coded },
    },
    {
      what: "the gas was burnt, and no payer has code: each is suspect",
      receipt: burnt,
      found: { faults: all, offenders: [] },
    },
    { what: "19 parts of 20 are not all", receipt: { gasUsed: tag(95_000n) }, found: none },
    {
      what: "the transaction reverted",
      receipt: { status: "0x0" },
      world: { coded },
      found: { faults: [wordOf(2n)], offenders: coded },
    },
    {
      what: "alone, without code",
      tx: { items: items.slice(0, 1) },
      found: { faults: [wordOf(1n)], offenders: [] },
    },
    {
      what: "alone, with code",
      tx: { items: items.slice(1, 2), to: MULTICALL3_ADDRESS },
      world: { coded },
      found: { faults: [wordOf(2n)], offenders: coded },
    },
    {
      what: "two payments of one payer",
      proven: [1n],
      world: { coded },
      tx: {
        items: items.map((item, index) =>
          index === 2 ? { ...item, from: payerOf(2n).toUpperCase().replace("0X", "0x") } : item,
        ),
      },
      found: { faults: [wordOf(2n), wordOf(3n)], offenders: coded },
    },
  ];
  for (const { what, world, tx: over, receipt, proven: ids, found } of cases) {
    const { ctx } = contextOf(world ?? {});
    const result = await attributeFailure(
      ctx,
      tx(over ?? {}),
      receiptOf(receipt),
      proven(ids ?? []),
    );
    t.same(result, found, what);
  }
});

t.test("a transaction that a third party names", async (t) => {
  const { from, to, asset, nonce, value } = AUTHORIZATION;
  const logs = [
    {
      address: asset,
      topics: [AUTHORIZATION_USED, wordOf(BigInt(from)), nonce as Hex],
      data: "0x",
    },
    {
      address: asset,
      topics: [TRANSFER, wordOf(BigInt(from)), wordOf(BigInt(to))],
      data: wordOf(value),
    },
  ] as NonNullable<World["transactions"]>[number]["logs"];
  const world: World = { transactions: [{ hash: HASH, block: 60n, logs: logs ?? [] }] };
  const prove = async (around: Surroundings, id = "pay_1") => {
    const { ctx } = contextOf(world, { open: recordOf(), ...around });
    return proveByTransaction(ctx, id, HASH);
  };
  t.match(await prove({}), {
    record: { id: "pay_1" },
    outcome: { status: "settled", byOther: true, isFinal: true },
  });
  t.match(await prove({ ours: [HASH] }), { outcome: { byOther: false } });
  t.match(await prove({ known: "unknown" }), { outcome: { status: "settled" } });
  t.match(await prove({ network: { inclusionDepth: 42 } }), { outcome: undefined });
  t.same(await prove({}, "pay_2"), { record: undefined, outcome: undefined });
});

// A nonce of ours is used, and none of our attempts has a receipt.

type Slot = StoredTransaction & { search: NonceSearch | undefined };
const slotOf = (nonce: bigint, sentBlock: bigint | undefined): Slot => ({
  nonce,
  to: BATCHER,
  calldata: "0x",
  gasLimit: 1n,
  attempts: [attempt(OTHER), attempt(HASH)],
  items: [],
  sentBlock,
  included: undefined,
  search: undefined,
});
const THIEF: Hex = `0x${"77".repeat(32)}`;
const takenAt = (block: bigint, nonce: bigint, hash: Hex = THIEF) => ({
  hash,
  block,
  from: LANE,
  nonce,
});
/** Another account's transaction with the same nonce, and another transaction of the lane, in every block of interest. */
const noise = [
  { hash: `0x${"31".repeat(32)}` as const, block: 70n, from: BATCHER, nonce: 5n },
  { hash: `0x${"32".repeat(32)}` as const, block: 30n, from: LANE, nonce: 4n },
];

t.test("who took a nonce: from the states", async (t) => {
  for (const block of [31n, 40n, 49n, 50n, 51n, 52n, 66n, 69n, 98n])
    for (const sentBlock of [50n, undefined, 97n, 98n, 0n]) {
      const world: World = { transactions: [...noise, takenAt(block, 5n)] };
      const { ctx, noted } = contextOf(world, { network: { confirmations: 3 } });
      const found = await takenByOther(ctx, LANE, slotOf(5n, sentBlock), 100n);
      const place = { txHash: THIEF, blockNumber: block, blockHash: hashOfBlock(block) };
      t.same(found, place, `in block ${block}, signed at ${sentBlock}`);
      const states = noted.calls.filter(([method]) => method === "eth_getTransactionCount");
      t.ok(states.length < 20, "by bisection");
      t.equal(noted.calls.length - states.length, 1, "and one block");
    }
  const first: World = { transactions: [takenAt(0n, 5n)] };
  for (const sentBlock of [50n, 0n]) {
    const { ctx } = contextOf(first);
    t.match(await takenByOther(ctx, LANE, slotOf(5n, sentBlock), 100n), { blockNumber: 0n });
  }
});

t.test("a nonce that is not used in a final block", async (t) => {
  for (const block of [99n, 100n]) {
    const world: World = { transactions: [...noise, takenAt(block, 5n)] };
    const { ctx } = contextOf(world, { network: { confirmations: 3 } });
    const slot = slotOf(5n, 50n);
    t.equal(await takenByOther(ctx, LANE, slot, 100n), undefined);
    const later = contextOf({ prunedBefore: 1_000n, transactions: [takenAt(60n, 5n)] });
    const found = await takenByOther(later.ctx, LANE, slot, 100n);
    t.match(found, { blockNumber: 60n }, "no block counts as read");
  }
});

t.test("one of our own attempts took it: its receipt is late", async (t) => {
  for (const hash of [HASH, OTHER]) {
    const { ctx } = contextOf({ transactions: [takenAt(60n, 5n, hash)] });
    t.equal(await takenByOther(ctx, LANE, slotOf(5n, 50n), 100n), "nowhere");
  }
});

/** The blocks that were read in each round, until the search ends. */
async function rounds(world: World, slot: Slot, around: Surroundings = {}, head = 100n) {
  const read: string[] = [];
  const results: unknown[] = [];
  for (let round = 0; round < 9; round += 1) {
    const { ctx, noted } = contextOf(world, around);
    const found = await takenByOther(ctx, LANE, slot, head);
    const blocks = noted.calls
      .filter(([method]) => method === "eth_getBlockByNumber")
      .map(([, params]) => Number(params[0]));
    read.push(blocks.length === 0 ? "none" : `${Math.min(...blocks)}-${Math.max(...blocks)}`);
    results.push(found);
    if (typeof found === "object" || blocks.length === 0) break;
  }
  return { read, results };
}

t.test("who took a nonce: block by block, where the states are gone", async (t) => {
  const pruned = { prunedBefore: 1_000n };
  const up = await rounds(
    { ...pruned, transactions: [...noise, takenAt(70n, 5n)] },
    slotOf(5n, 50n),
  );
  t.same(up.read, ["51-66", "67-82"]);
  t.match(up.results, [
    undefined,
    { txHash: THIEF, blockNumber: 70n, blockHash: hashOfBlock(70n) },
  ]);
  const down = await rounds({ ...pruned, transactions: [takenAt(20n, 5n)] }, slotOf(5n, 50n), {
    network: { confirmations: 35 },
  });
  t.same(down.read, ["51-66", "35-50", "19-34"], "then before it was signed: a second signer");
  t.match(down.results, [
    "nowhere",
    "nowhere",
    { txHash: THIEF, blockNumber: 20n, blockHash: hashOfBlock(20n) },
  ]);
  const nowhere = await rounds(pruned, slotOf(5n, 20n), {}, 40n);
  t.same(nowhere.read, ["21-36", "37-40", "5-20", "0-4", "none"], "to the first block");
  t.same(nowhere.results, [undefined, "nowhere", "nowhere", "nowhere", "nowhere"]);
  const old = await rounds({ ...pruned, transactions: [takenAt(95n, 5n)] }, slotOf(5n, undefined));
  t.same(old.read, ["85-100"], "an old row without its block");
  t.match(old.results, [{ blockNumber: 95n }]);
  const exact = await rounds(pruned, slotOf(5n, 24n), {}, 40n);
  t.same(exact.read.slice(0, 2), ["25-40", "9-24"], "exactly one round");
  const atFirst = await rounds(pruned, slotOf(5n, 15n), {}, 15n);
  t.same(atFirst.read, ["0-15", "none"]);
  const firstLeft = await rounds(pruned, slotOf(5n, 16n), {}, 16n);
  t.same(firstLeft.read, ["1-16", "0-0", "none"]);
  const lastLeft = await rounds(pruned, slotOf(5n, 23n), {}, 40n);
  t.same(lastLeft.read.slice(0, 3), ["24-39", "40-40", "8-23"]);
  t.same(lastLeft.results.slice(0, 2), [undefined, "nowhere"], "the last final block was not read");
});

t.test("a second endpoint must show the transaction, too", async (t) => {
  const world: World = { transactions: [takenAt(60n, 5n)] };
  const without: Lie = (method, params) =>
    method === "eth_getBlockByNumber" && params[1] === true
      ? { hash: hashOfBlock(60n), transactions: [] }
      : undefined;
  const another: Lie = (method, params) =>
    method === "eth_getBlockByNumber" && params[1] === true
      ? { hash: hashOfBlock(60n), transactions: [{ hash: OTHER, from: LANE, nonce: "0x5" }] }
      : undefined;
  const truth: Lie = () => undefined;
  const down: Lie = () => unreachable();
  const cases: [string, Lie[], boolean][] = [
    ["both show it", [truth, truth], true],
    ["the other does not", [truth, without], false],
    ["the other shows another one", [truth, another], false],
    ["the other is down", [truth, down], false],
    ["two of three", [truth, without, truth], true],
  ];
  for (const [what, endpoints, isTaken] of cases) {
    const { ctx } = contextOf(world, { endpoints });
    const found = await takenByOther(ctx, LANE, slotOf(5n, 50n), 100n);
    t.match(found, isTaken ? { txHash: THIEF } : undefined, what);
    if (!isTaken) t.equal(found, undefined, what);
  }
});
