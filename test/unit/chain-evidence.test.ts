// Goal: late, pruned, partial or wrong answers of nodes never become a wrong outcome: who used an authorization, who refused it, and that it expired are decided by enough evidence only.
import t from "tap";
import { encodeFunctionResult, multicall3Abi, toEventSelector, type Hex } from "viem";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import { ChainRefusal } from "../../server/infra/chain/errors.ts";
import {
  explainUse,
  proveExpired,
  proveRefused,
  refusalsBy,
  Refusals,
} from "../../server/plugins/settlement/prove.ts";
import { toBatchItem } from "../../server/plugins/settlement/batch.ts";
import { isFinalBlock } from "../../server/plugins/settlement/receipts.ts";
import type { SettlementRecord } from "../../server/plugins/settlement/types.ts";
import {
  AUTHORIZATION_CANCELED,
  AUTHORIZATION_USED,
  TRANSFER,
} from "../../server/schemes/exact-eip3009/onchain.ts";
import { schemeOf } from "../../server/schemes/index.ts";
import { EXACT_PROXY, UPTO_PROXY } from "../../server/schemes/permit2/onchain.ts";
import {
  answer,
  contextOf,
  GONE,
  hashOfBlock,
  tag,
  unreachable,
  type Lie,
  type Log,
  type Surroundings,
  type Transaction,
  type World,
} from "./chain-answers.ts";
import { AUTHORIZATION, PAYEE, recordOf } from "./payment-samples.ts";

const HASH: Hex = `0x${"fe".repeat(32)}`;
const OTHER: Hex = `0x${"0d".repeat(32)}`;
const SETTLED = toEventSelector("Settled()");
const APPROVAL = toEventSelector("Approval(address,address,uint256)");
const word = (value: string | bigint): Hex =>
  typeof value === "bigint"
    ? `0x${value.toString(16).padStart(64, "0")}`
    : `0x${value.slice(2).toLowerCase().padStart(64, "0")}`;

const { from, to, asset, nonce, value } = AUTHORIZATION;
const KEY = { from, asset, nonce };
const token = (topics: Hex[], data: Hex = "0x"): Log => ({ address: asset, topics, data });
const used = token([AUTHORIZATION_USED, word(from), nonce as Hex]);
const canceled = token([AUTHORIZATION_CANCELED, word(from), nonce as Hex]);
const moved = (amount: bigint): Log => token([TRANSFER, word(from), word(to)], word(amount));
const payment = (block: bigint, hash = HASH): Transaction => ({
  hash,
  block,
  logs: [used, moved(value)],
});
const usedAt = (block: bigint) => ({ [nonce]: block });

const AGENTS = { kind: "spend", agentId: "agt_1" } as const;
const REFUND = { kind: "refund" } as const;
type Over = Partial<SettlementRecord>;

function explain(world: World, over: Over = {}, around: Surroundings = {}) {
  const { ctx, noted } = contextOf(world, around);
  return explainUse(ctx, recordOf(AUTHORIZATION, over)).then((outcome) => ({ outcome, noted }));
}
const outcomeFor = async (...args: Parameters<typeof explain>) => (await explain(...args)).outcome;

/** The contract returns nothing in calls at this block. */
const mute =
  (block: bigint): Lie =>
  (method, params) =>
    method === "eth_call" && params[1] === tag(block)
      ? encodeFunctionResult({
          abi: multicall3Abi,
          functionName: "aggregate3",
          result: [{ success: true, returnData: "0x" }],
        })
      : undefined;

t.test("a payment that a third party presented", async (t) => {
  const settled = { ...KEY, status: "settled", isFinal: true };
  const replay = { ...KEY, status: "failed", isFinal: true, message: /before it was presented/ };
  const world = (block: bigint, more: World = {}): World => ({
    transactions: [payment(block)],
    ended: usedAt(block),
    ...more,
  });
  const cases: [string, World, Over, Surroundings, object | undefined][] = [
    [
      "used after it was accepted",
      world(51n),
      {},
      {},
      { ...settled, byOther: true, proof: { kind: "receipt", tx: HASH, block: "51" } },
    ],
    ["by our own transaction", world(51n), {}, { ours: [HASH] }, { ...settled, byOther: false }],
    [
      "used in the block at which it was accepted",
      world(50n),
      {},
      {},
      { ...replay, proof: { kind: "state", block: "50", blockHash: hashOfBlock(50n) } },
    ],
    ["used before", world(40n), {}, {}, { ...replay, proof: { kind: "state" } }],
    [
      "used before, and the old states are gone: its log shows it",
      world(40n, { prunedBefore: 60n }),
      {},
      {},
      { ...replay, proof: { kind: "receipt", block: "40" } },
    ],
    [
      "the block of acceptance may still be reorganised: the log decides when it is final",
      world(50n, { head: 51n }),
      {},
      { network: { confirmations: 3 } },
      undefined,
    ],
    [
      "the block of acceptance is just final",
      world(50n, { head: 52n }),
      {},
      { network: { confirmations: 3 } },
      { ...replay, proof: { kind: "state" } },
    ],
    [
      "a row without that block, used long ago",
      world(40n),
      { acceptedBlock: null },
      {},
      { ...settled, byOther: true },
    ],
    [
      "the contract returned no state for that block",
      world(51n),
      {},
      { endpoints: [mute(50n)] },
      { ...settled },
    ],
    [
      "the node has no header of that block",
      world(40n),
      {},
      { endpoints: [(method) => (method === "eth_getBlockByNumber" ? GONE : undefined)] },
      // Nothing shows that the block of the receipt is in the chain.
      undefined,
    ],
    ["a refund that another party relayed", world(50n), REFUND, {}, { ...settled, byOther: true }],
    ["a refund of long ago", world(40n), REFUND, {}, { ...settled, byOther: true }],
    ["an agent's own payment is no replay", world(40n), AGENTS, {}, undefined],
    ["an agent's own payment", world(50n), AGENTS, {}, { ...settled, byOther: true }],
    ["no transaction is found", { ended: usedAt(51n) }, {}, {}, undefined],
  ];
  for (const [what, world, over, around, expected] of cases) {
    const found = await outcomeFor(world, over, around);
    if (expected === undefined) t.equal(found, undefined, what);
    else t.match(found, expected, what);
  }
});

t.test("an error that is no missing state is not taken for one", async (t) => {
  const broken: Lie = (method, params) =>
    method === "eth_call" && params[1] === tag(50n)
      ? new ChainRefusal("execution reverted", 3, "0x")
      : undefined;
  await t.rejects(explain({ transactions: [payment(51n)] }, {}, { endpoints: [broken] }), {
    message: /reverted/,
  });
});

t.test("our own transactions are checked first, each of them", async (t) => {
  const world: World = {
    transactions: [{ hash: OTHER, block: 60n }, payment(61n)],
    ended: usedAt(40n),
  };
  t.match(
    await outcomeFor(world, {}, { carried: [OTHER, HASH] }),
    { status: "settled", byOther: false, proof: { tx: HASH } },
    "the first one had no effect",
  );
  t.match(
    await outcomeFor(world, {}, { carried: [OTHER] }),
    { status: "failed", proof: { kind: "state" } },
    "none of ours had an effect",
  );
  t.match(
    await outcomeFor(world, {}, { carried: [`0x${"99".repeat(32)}`, HASH] }),
    { status: "settled" },
    "one has no receipt",
  );
});

t.test("this process knows no block yet", async (t) => {
  const world = { transactions: [payment(51n)], ended: usedAt(51n) };
  t.match(await outcomeFor(world, {}, { known: "unknown" }), { status: "settled" });
});

t.test("a cancellation, or another use of the nonce", async (t) => {
  const world = (logs: Log[]): World => ({
    head: 62n,
    transactions: [{ hash: HASH, block: 60n, logs }],
    ended: usedAt(60n),
  });
  const other = [used, moved(1n)];
  const network = { confirmations: 3 };
  t.match(await outcomeFor(world([canceled]), AGENTS, { network }), {
    status: "failed",
    reason: "authorization_canceled",
    isFinal: true,
    message: /canceled/,
  });
  t.match(await outcomeFor(world([canceled]), {}, { network }), {
    reason: "invalid_exact_evm_nonce_already_used",
    message: /canceled/,
  });
  t.match(await outcomeFor(world(other), AGENTS, { network }), {
    status: "failed",
    reason: "invalid_exact_evm_nonce_already_used",
    message: /another authorization/,
  });
  for (const logs of [[canceled], other]) {
    const late = { ...world(logs), head: 61n };
    t.equal(await outcomeFor(late, AGENTS, { network }), undefined, "not before it is final");
    t.equal(await outcomeFor(late, {}, { network }), undefined);
  }
});

t.test("a block counts when enough others follow", async (t) => {
  const network = { inclusionDepth: 2, confirmations: 4 };
  const at = (head: bigint) =>
    outcomeFor({ head, transactions: [payment(60n)], ended: usedAt(60n) }, AGENTS, { network });
  t.equal(await at(60n), undefined);
  t.match(await at(61n), { status: "settled", isFinal: false });
  t.match(await at(62n), { isFinal: false });
  t.match(await at(63n), { isFinal: true });
});

/** The ranges of blocks in which the logs were searched. */
const rangesIn = ({ calls }: { calls: [string, unknown[]][] }): string[] =>
  calls.flatMap(([method, params]) => {
    if (method !== "eth_getLogs") return [];
    const [{ fromBlock, toBlock }] = params as [{ fromBlock: Hex; toBlock: Hex }];
    return [`${BigInt(fromBlock)}-${BigInt(toBlock)}`];
  });

t.test("the search of the logs reads a part at a time and remembers how far it came", async (t) => {
  const search = { spanBlocks: 20n, spansPerRound: 2 };
  const cases: {
    what: string;
    over?: Over;
    head?: bigint;
    ranges: string[];
    saved: [string | null, string | null];
    prunedBefore?: bigint;
    times?: Record<string, bigint>;
    spans?: number;
  }[] = [
    { what: "upwards first", ranges: ["50-69", "70-89"], saved: ["90", "49"], prunedBefore: 60n },
    {
      what: "then downwards",
      over: { searchedUp: 90n, searchedDown: 49n },
      ranges: ["90-100", "30-49"],
      saved: ["101", "29"],
      prunedBefore: 60n,
    },
    {
      what: "to the first block",
      over: { searchedUp: 101n, searchedDown: 29n },
      ranges: ["10-29", "0-9"],
      saved: [null, null],
      prunedBefore: 60n,
    },
    {
      what: "the first block alone is left",
      over: { searchedUp: 101n, searchedDown: 0n },
      ranges: ["0-0"],
      saved: [null, null],
      prunedBefore: 60n,
    },
    {
      what: "the newest block alone is left",
      over: { searchedUp: 100n, searchedDown: 9n },
      ranges: ["100-100", "0-9"],
      saved: [null, null],
      prunedBefore: 60n,
    },
    {
      what: "an agent's payment can only be later",
      over: { ...AGENTS, searchedUp: 90n },
      ranges: ["90-100"],
      saved: [null, null],
    },
    {
      what: "unused when it was accepted: it can only be later",
      over: { searchedUp: 90n },
      ranges: ["90-100"],
      saved: [null, null],
    },
    {
      what: "a refund may have been relayed before",
      over: { ...REFUND, searchedUp: 90n },
      ranges: ["90-100", "30-49"],
      saved: ["101", "29"],
    },
    {
      what: "exactly one part up to the newest block",
      over: { ...AGENTS, searchedUp: 81n },
      ranges: ["81-100"],
      saved: [null, null],
    },
    {
      what: "not below the block in which it became valid",
      over: {
        ...REFUND,
        searchedUp: 101n,
        authorization: { ...AUTHORIZATION, validAfter: 61n },
      },
      ranges: ["30-49"],
      saved: [null, null],
    },
    {
      what: "a block of the very second in which it became valid may hold it",
      over: {
        ...REFUND,
        searchedUp: 101n,
        authorization: { ...AUTHORIZATION, validAfter: 60n },
      },
      ranges: ["30-49", "10-29"],
      saved: ["101", "9"],
      times: { "10": 60n },
    },
    {
      what: "without the block of acceptance: the newest 50,000",
      over: { acceptedBlock: null, authorization: { ...AUTHORIZATION, validBefore: 2n ** 40n } },
      head: 100_000n,
      ranges: ["50000-50019", "50020-50039"],
      saved: ["50040", "49999"],
    },
    {
      what: "a young chain: from its first block",
      over: { acceptedBlock: null },
      ranges: ["0-19", "20-39"],
      saved: ["40", "-1"],
    },
    {
      what: "a young chain, to the end",
      over: { acceptedBlock: null },
      ranges: ["0-19", "20-39", "40-59", "60-79", "80-99", "100-100"],
      saved: [null, null],
      spans: 9,
    },
    {
      what: "the newest block is left",
      over: { ...AGENTS, searchedUp: 60n },
      ranges: ["60-79", "80-99"],
      saved: ["100", "49"],
    },
    {
      what: "the first block is left",
      over: { ...REFUND, searchedUp: 101n, searchedDown: 40n },
      ranges: ["21-40", "1-20"],
      saved: ["101", "0"],
    },
    {
      what: "exactly 50,000 blocks",
      over: { acceptedBlock: null },
      head: 50_000n,
      ranges: ["0-19", "20-39"],
      saved: ["40", "-1"],
    },
  ];
  for (const { what, over, head, ranges, saved, prunedBefore, times, spans } of cases) {
    const world: World = {
      ...(head !== undefined && { head }),
      ...(prunedBefore !== undefined && { prunedBefore }),
      ...(times && { times }),
    };
    const around = { search: { ...search, spansPerRound: spans ?? 2 } };
    const { outcome, noted } = await explain(world, over, around);
    t.equal(outcome, undefined, what);
    t.same(rangesIn(noted), ranges, what);
    t.same(noted.searches, [saved], what);
  }
});

t.test("the search goes on below a block whose time the node does not have", async (t) => {
  const without: Lie = (method, [block]) =>
    method === "eth_getBlockByNumber" && block === tag(30n) ? GONE : undefined;
  const over = {
    ...REFUND,
    searchedUp: 101n,
    authorization: { ...AUTHORIZATION, validAfter: 61n },
  };
  const search = { spanBlocks: 20n, spansPerRound: 2 };
  const { noted } = await explain({}, over, { search, endpoints: [without] });
  t.same(rangesIn(noted), ["30-49", "10-29"]);
});

t.test("the search stops at a log whose transaction is not there or not deep enough", async (t) => {
  const search = { spanBlocks: 20n, spansPerRound: 9 };
  const world: World = { transactions: [payment(60n)], ended: usedAt(60n) };
  const hidden: Lie = (method) => (method === "eth_getTransactionReceipt" ? GONE : undefined);
  const { outcome, noted } = await explain(world, AGENTS, { search, endpoints: [hidden] });
  t.equal(outcome, undefined);
  t.same(noted.searches, [], "it is searched again from there");
  t.same(rangesIn(noted), ["50-69"]);
  // A log that names the authorization, of a transaction without it: the node contradicts itself.
  const empty: Lie = (method, params) =>
    method === "eth_getLogs" && (params[0] as { fromBlock: Hex }).fromBlock === tag(50n)
      ? [{ transactionHash: OTHER }]
      : undefined;
  const both: World = { transactions: [{ hash: OTHER, block: 55n }, payment(75n)] };
  t.match(await outcomeFor(both, AGENTS, { search, endpoints: [empty] }), {
    status: "settled",
    proof: { tx: HASH },
  });
});

// Permit2: no log names the nonce.

const PERMIT2: SignedAuthorization = {
  ...AUTHORIZATION,
  nonce: `permit2:${word(7n)}`,
  terms: { scheme: "exact-permit2" },
};
const upto = (id: bigint, maximum: bigint): SignedAuthorization => ({
  ...AUTHORIZATION,
  nonce: `permit2:${word(id)}`,
  value: maximum,
  terms: { scheme: "upto", maximum: String(maximum), facilitator: PAYEE.toLowerCase() as Hex },
});
/** The token's transfer and then the proxy's event. */
const traceOf = (amount: bigint, proxy = EXACT_PROXY): Log[] => [
  moved(amount),
  { address: proxy.address, topics: [SETTLED], data: "0x" },
];
const callOf = (authorization: SignedAuthorization) => {
  const [{ target, data }] = schemeOf(authorization).planTransfer(authorization).calls();
  return { to: target, data };
};
const UNREADABLE = { to: `0x${"77".repeat(20)}`, data: "0x12345678" as Hex };
const permit2At = (block: bigint, over: Partial<Transaction> = {}): World => ({
  transactions: [
    { hash: HASH, block, logs: traceOf(value), sent: callOf(PERMIT2), from: PAYEE, ...over },
  ],
  ended: { [PERMIT2.nonce]: block },
});
const ofPermit2 = (over: Over = {}) => ({
  ...over,
  authorization: { ...PERMIT2, terms: PERMIT2.terms ?? null },
});

t.test("a nonce that no log names: the states show in which block it was used", async (t) => {
  const settled = { status: "settled", byOther: true, isFinal: true };
  const failed = {
    status: "failed",
    reason: "permit2_invalid_nonce",
    isFinal: true,
    proof: { kind: "state", block: "60", blockHash: hashOfBlock(60n) },
    message: /Another transaction used the nonce in block 60/,
  };
  const foreign = permit2At(60n, { sent: UNREADABLE, logs: [moved(1n)] });
  const without = permit2At(60n, { logs: [] });
  const two: World = {
    ...permit2At(60n),
    transactions: [
      { hash: OTHER, block: 60n, logs: [moved(5n)], sent: UNREADABLE },
      ...(permit2At(60n).transactions ?? []),
    ],
  };
  const cases: [string, World, Over, Surroundings, object | undefined][] = [
    ["the payment", permit2At(60n), {}, {}, { ...settled, proof: { tx: HASH, block: "60" } }],
    ["by us", permit2At(60n), {}, { ours: [HASH] }, { ...settled, byOther: false }],
    ["in the next block", permit2At(51n), {}, {}, { ...settled, proof: { block: "51" } }],
    ["in the newest block", permit2At(100n), {}, {}, { ...settled, proof: { block: "100" } }],
    ["beside another transaction of the payer", two, {}, {}, settled],
    ["something else moved", foreign, {}, {}, failed],
    ["nothing names the payer", without, {}, {}, failed],
    ["an agent's nonce was used without a trace: it stays unknown", foreign, AGENTS, {}, undefined],
    [
      "something else, not final yet",
      { ...foreign, head: 61n },
      {},
      { network: { confirmations: 3 } },
      undefined,
    ],
    [
      "something else, just final",
      { ...foreign, head: 62n },
      {},
      { network: { confirmations: 3 } },
      failed,
    ],
    [
      "a payment is reported before it is final",
      { ...permit2At(60n), head: 61n },
      {},
      { network: { confirmations: 3 } },
      { status: "settled", isFinal: false },
    ],
    [
      "a node without the receipts of blocks",
      foreign,
      {},
      { endpoints: [(method) => (method === "eth_getBlockReceipts" ? GONE : undefined)] },
      undefined,
    ],
    [
      "a node with the receipt and without the transaction",
      foreign,
      {},
      { endpoints: [(method) => (method === "eth_getTransactionByHash" ? GONE : undefined)] },
      undefined,
    ],
    [
      "accepted at the first block",
      permit2At(1n),
      { acceptedBlock: null },
      {},
      { ...settled, proof: { block: "1" } },
    ],
    ["a refund", permit2At(60n), REFUND, {}, settled],
    [
      "a node without an unrelated transaction of that block",
      { ...foreign, transactions: [{ hash: OTHER, block: 60n }, ...(foreign.transactions ?? [])] },
      {},
      {
        endpoints: [
          (method, [hash]) =>
            method === "eth_getTransactionByHash" && hash === OTHER ? GONE : undefined,
        ],
      },
      failed,
    ],
  ];
  for (const [what, world, over, around, expected] of cases) {
    const found = await outcomeFor(world, ofPermit2(over), around);
    if (expected === undefined) t.equal(found, undefined, what);
    else t.match(found, expected, what);
  }
});

t.test("where no state shows the block, the logs are searched", async (t) => {
  const receipts = ({ calls }: { calls: [string, unknown[]][] }) =>
    calls.filter(([method]) => method === "eth_getBlockReceipts").length;
  const cases: [string, World, Over, Surroundings][] = [
    ["the states are gone", { ...permit2At(60n), prunedBefore: 90n }, AGENTS, {}],
    ["the newest state does not show the use", { ...permit2At(60n), ended: {} }, AGENTS, {}],
    ["used before it was accepted", permit2At(50n), { ...AGENTS }, {}],
  ];
  for (const [what, world, over, around] of cases) {
    const { outcome, noted } = await explain(world, ofPermit2(over), around);
    t.match(outcome, { status: "settled", proof: { tx: HASH } }, what);
    t.equal(receipts(noted), 0, what);
  }
  await t.rejects(explain(permit2At(60n), ofPermit2(AGENTS), { endpoints: [mute(100n)] }), {
    message: /does not return whether it is used/,
  });
});

t.test("a payment whose call cannot be read", async (t) => {
  const unread = permit2At(60n, { sent: UNREADABLE });
  const third = await explain(unread, ofPermit2());
  t.equal(third.outcome, undefined, "a third party's: neither paid nor failed");
  t.match(third.noted.errors, [[{ settlement: "pay_1", hash: HASH }, /stays unknown/]]);
  const own = recordOf(PERMIT2, AGENTS);
  t.match(
    await outcomeFor(unread, ofPermit2(AGENTS), { alike: [own] }),
    { status: "settled", byOther: true, proof: { tx: HASH } },
    "an agent's wallet signed this once: the trace is its own",
  );
});

t.test("several payments of an agent that look the same", async (t) => {
  const open = (id: bigint, maximum: bigint, over: Over = {}) =>
    recordOf(upto(id, maximum), { ...AGENTS, id: `pay_${id}`, ...over });
  const small = open(1n, 10n);
  const large = open(2n, 30n, { status: "submitted" });
  const trace = (amount: bigint, hash: Hex): Transaction => ({
    hash,
    block: 60n,
    logs: traceOf(amount, UPTO_PROXY),
    sent: UNREADABLE,
  });
  const both = { [small.authorization.nonce]: 60n, [large.authorization.nonce]: 60n };
  const cases: {
    what: string;
    traces: Transaction[];
    ended: Record<string, bigint | "mute">;
    alike: SettlementRecord[];
    of: SettlementRecord;
    amount: string | undefined;
  }[] = [
    {
      what: "the other one's trace is above its maximum: not before the other one is reported",
      traces: [trace(20n, HASH), trace(5n, OTHER)],
      ended: both,
      alike: [small, large],
      of: small,
      amount: undefined,
    },
    {
      what: "the other one was reported",
      traces: [trace(20n, HASH), trace(5n, OTHER)],
      ended: both,
      alike: [small, open(2n, 20n, { status: "settled", txHash: HASH })],
      of: small,
      amount: "5",
    },
    {
      what: "the smallest amount is the smallest maximum's",
      traces: [trace(9n, HASH), trace(5n, OTHER)],
      ended: both,
      alike: [small, large],
      of: small,
      amount: "5",
    },
    {
      what: "and the largest the largest's",
      traces: [trace(20n, HASH), trace(5n, OTHER)],
      ended: both,
      alike: [small, large],
      of: large,
      amount: "20",
    },
    {
      what: "in whatever order the block has them",
      traces: [trace(5n, OTHER), trace(20n, HASH)],
      ended: both,
      alike: [small, large],
      of: large,
      amount: "20",
    },
    {
      what: "two were used, one left a trace",
      traces: [trace(20n, HASH)],
      ended: both,
      alike: [small, large],
      of: large,
      amount: undefined,
    },
    {
      what: "one was used, two left a trace",
      traces: [trace(20n, HASH), trace(5n, OTHER)],
      ended: { [large.authorization.nonce]: 60n },
      alike: [small, large],
      of: large,
      amount: undefined,
    },
    {
      what: "one was used in this block, the other in an earlier one",
      traces: [trace(20n, HASH)],
      ended: { [small.authorization.nonce]: 59n, [large.authorization.nonce]: 60n },
      alike: [small, large],
      of: large,
      amount: "20",
    },
    {
      what: "the other one was reported as settled by its trace",
      traces: [trace(20n, HASH), trace(5n, OTHER)],
      ended: both,
      alike: [open(1n, 5n, { status: "settled", txHash: OTHER }), large],
      of: large,
      amount: "20",
    },
    {
      what: "the other one was reported by a transaction without a trace here",
      traces: [trace(20n, HASH), trace(5n, OTHER)],
      ended: both,
      alike: [open(1n, 5n, { status: "settled", txHash: `0x${"33".repeat(32)}` }), large],
      of: large,
      amount: undefined,
    },
    {
      what: "the other one was reported by that transaction with another amount",
      traces: [trace(20n, HASH), trace(5n, OTHER)],
      ended: both,
      alike: [open(1n, 6n, { status: "settled", txHash: OTHER }), large],
      of: large,
      amount: undefined,
    },
    {
      what: "sent by us, in a transaction that cannot be read: it counts as open",
      traces: [trace(30n, HASH), trace(5n, OTHER)],
      ended: both,
      alike: [small, open(2n, 30n, { status: "submitted", txHash: HASH })],
      of: large,
      amount: "30",
    },
    {
      what: "the contract does not return one of the states",
      traces: [trace(20n, HASH)],
      ended: { [`permit2:${word(300n)}`]: "mute", [large.authorization.nonce]: 60n },
      alike: [open(300n, 10n), large],
      of: large,
      amount: undefined,
    },
    {
      what: "it is not among those used in this block",
      traces: [trace(20n, HASH)],
      ended: both,
      alike: [small],
      of: large,
      amount: undefined,
    },
  ];
  for (const { what, traces, ended, alike, of, amount } of cases) {
    const { ctx } = contextOf({ transactions: traces, ended }, { alike });
    const outcome = await explainUse(ctx, of);
    t.equal(outcome?.amount, amount, what);
    if (amount === undefined) t.equal(outcome, undefined, what);
    else t.match(outcome, { status: "settled", byOther: true }, what);
  }
});

t.test("an agent's allowance for a contract", async (t) => {
  const allowance: SignedAuthorization = {
    ...AUTHORIZATION,
    nonce: `permit2:${word(3n)}`,
    terms: { scheme: "allowance", count: "3" },
  };
  const over: Over = {
    agentId: "agt_1",
    kind: "allowance",
    authorization: { ...allowance, terms: allowance.terms ?? null },
  };
  const approval = (amount: bigint) => token([APPROVAL, word(from), word(to)], word(amount));
  // The token counts the permits of an account.
  const counts: Lie = (method, [, block]) =>
    method === "eth_call"
      ? encodeFunctionResult({
          abi: multicall3Abi,
          functionName: "aggregate3",
          result: [{ success: true, returnData: word(BigInt(block as Hex) >= 60n ? 4n : 3n) }],
        })
      : undefined;
  const at = (logs: Log[]): World => ({
    transactions: [{ hash: HASH, block: 60n, logs, sent: UNREADABLE }],
  });
  t.match(await outcomeFor(at([approval(value)]), over, { endpoints: [counts] }), {
    status: "settled",
    proof: { tx: HASH },
  });
  t.match(
    await outcomeFor(at([approval(1n)]), over, { endpoints: [counts] }),
    { status: "failed", isFinal: true, proof: { kind: "state", block: "60" } },
    "another permit used its number: no money moved",
  );
});

// Refused simulations.

const refusedBy = async () => [true];

t.test("how long a refused payment waits", async (t) => {
  const prove = async (over: Over, network: object = {}, text = "Pausable: paused") => {
    const { ctx } = contextOf({}, { network });
    const record = recordOf(AUTHORIZATION, over);
    const [found] = await proveRefused(ctx, [{ record, text }], new Refusals(), refusedBy);
    return found?.proof;
  };
  const used = "authorization is used or canceled";
  t.same(await prove({}, { blockTimeMs: 2_000 }, used), { retryAfterMs: 2_000 }, "a block");
  t.same(await prove({}, { blockTimeMs: 100 }, used), { retryAfterMs: 500 }, "not less");
  t.same(await prove({}), { retryAfterMs: 500 }, "until a second refusal");
  const waiting = async (ageMs: number) => {
    const found = await prove({
      kind: "x402",
      agentId: "a",
      createdAt: new Date(Date.now() - ageMs),
    });
    return found && "retryAfterMs" in found ? found.retryAfterMs : undefined;
  };
  t.equal(await waiting(0), 2_000, "refused just now");
  const later = (await waiting(40_000)) ?? 0;
  t.ok(later >= 5_000 && later < 14_000, "an eighth of its age");
  t.equal(await waiting(4_000_000), 15_000, "at most");
});

t.test("when a refusal is the end of a payment", async (t) => {
  const public_ = { attempts: 1 };
  const cases: [string, Over, boolean][] = [
    ["a third party's", {}, true],
    ["a third party's that was sent", public_, true],
    ["a spend that was never sent", AGENTS, true],
    ["a spend that was sent", { ...AGENTS, ...public_ }, false],
    ["a withdrawal that was sent", { ...AGENTS, kind: "withdrawal", ...public_ }, false],
    ["an x402 payment: the seller has it", { ...AGENTS, kind: "x402" }, false],
    ["a refund: the merchant has it", REFUND, false],
    ["one that is to be canceled", { cancelSignature: `0x${"00".repeat(65)}` }, false],
  ];
  for (const [what, over, isEnd] of cases) {
    const { ctx } = contextOf({});
    const refused = [{ record: recordOf(AUTHORIZATION, over), text: "Pausable: paused" }];
    const tooOften = refused.map((one) => ({ ...one, hasTooManyFaults: true }));
    const [found] = await proveRefused(ctx, tooOften, new Refusals(), refusedBy);
    const proof = { kind: "refusal", block: "100", blockHash: hashOfBlock(100n) };
    const end = { outcome: { ...KEY, status: "failed", isFinal: true, proof } };
    t.match(found?.proof, isEnd ? end : { retryAfterMs: 15_000 }, what);
  }
});

t.test("refused, and the contract's state", async (t) => {
  const records = [1n, 2n, 3n].map((id) =>
    recordOf({ ...AUTHORIZATION, nonce: word(id) }, { id: `pay_${id}` }),
  );
  const [one, two, three] = records.map(({ authorization }) => authorization.nonce);
  const log = (topic: Hex): Log => token([AUTHORIZATION_USED, word(from), topic]);
  const { ctx, noted } = contextOf({
    transactions: [{ hash: HASH, block: 60n, logs: [log(two as Hex), moved(value)] }],
    ended: { [String(two)]: 60n, [String(three)]: "mute" },
  });
  const refused = records.map((record) => ({ record, text: "?", hasTooManyFaults: true }));
  const found = await proveRefused(ctx, refused, new Refusals(), refusedBy);
  t.match(
    found.map(({ record, proof }) => [record.id, proof]),
    [
      ["pay_1", { outcome: { nonce: one, status: "failed", proof: { kind: "refusal" } } }],
      ["pay_2", { outcome: { nonce: two, status: "settled", proof: { tx: HASH } } }],
      ["pay_3", { retryAfterMs: 500 }],
    ],
    "unused, used, and without an answer",
  );
  t.equal(noted.calls.filter(([method]) => method === "eth_call").length, 2, "read together");
  const unseen = contextOf({ ended: usedAt(60n) });
  const [late] = await proveRefused(
    unseen.ctx,
    [{ record: recordOf(), text: "?" }],
    new Refusals(),
    refusedBy,
  );
  t.same(late?.proof, { retryAfterMs: 2_000 }, "used, and its transaction is not found yet");
});

t.test("a second refusal by a single endpoint", async (t) => {
  const clock = { ms: 1_000_000 };
  t.intercept(performance, "now", { value: () => clock.ms });
  const before = new Refusals();
  const isEnd = async (head: bigint, hasTooManyFaults = false, blockTimeMs = 500) => {
    const { ctx } = contextOf({ head }, { network: { blockTimeMs } });
    const others = recordOf({ ...AUTHORIZATION, nonce: word(5n) }, { id: "pay_5" });
    const refused = [
      { record: recordOf(), text: "?", hasTooManyFaults },
      { record: others, text: "authorization is expired" },
    ];
    const [found] = await proveRefused(ctx, refused, before, refusedBy);
    return found !== undefined && "outcome" in found.proof;
  };
  t.equal(await isEnd(100n), false, "it may lag");
  t.equal(await isEnd(100n), false, "the same block");
  t.equal(await isEnd(101n), true, "a newer block");
  t.equal(await isEnd(101n), false, "what was decided is forgotten");
  clock.ms += 1_499;
  t.equal(await isEnd(101n), false, "not long enough");
  clock.ms += 1;
  t.equal(await isEnd(101n), true, "three block times later");
  t.equal(await isEnd(101n, false, 200), false);
  clock.ms += 999;
  t.equal(await isEnd(101n, false, 200), false, "but at least a second");
  clock.ms += 1;
  t.equal(await isEnd(101n, false, 200), true);
  t.equal(
    await isEnd(101n, true),
    true,
    "mined without effect so often that it is not asked again",
  );
});

t.test("what was refused before is forgotten when it is too much", async (t) => {
  const before = new Refusals();
  const repeated = (id: number, block: bigint) => before.isRepeated(String(id), block, Infinity);
  for (let id = 0; id <= 10_000; id += 1) repeated(id, 1n);
  t.equal(repeated(0, 2n), true);
  t.equal(repeated(10_001, 1n), false);
  t.equal(repeated(0, 2n), false, "one more check");
});

t.test("refusals by several endpoints", async (t) => {
  const cases: [string, (boolean | "down")[], boolean, number][] = [
    ["all refuse", [true, true], true, 0],
    ["one is down", [true, "down"], false, 0],
    ["one accepts", [true, false], false, 1],
    ["two of three refuse", [true, true, "down"], true, 0],
    ["two of three refuse, and one accepts", [true, true, false], false, 1],
    ["all accept", [false, false], false, 1],
    ["all are down", ["down", "down"], false, 0],
  ];
  for (const [what, verdicts, isEnd, suspected] of cases) {
    const { ctx, noted } = contextOf({}, { endpoints: verdicts.map(() => () => undefined) });
    let next = 0;
    const refusedBy = async () => {
      const verdict = verdicts[next++];
      if (verdict === "down" || verdict === undefined) throw unreachable();
      // The second item is always refused, by all.
      return [verdict, true];
    };
    const refused = [recordOf(), recordOf({ ...AUTHORIZATION, nonce: word(5n) })].map((record) => ({
      record,
      text: "?",
    }));
    const found = await proveRefused(ctx, refused, new Refusals(), refusedBy);
    t.equal(found[0] && "outcome" in found[0].proof, isEnd, what);
    t.equal(noted.suspected, suspected, what);
  }
});

t.test("endpoints on two branches do not make a block final", async (t) => {
  const same: Lie = () => undefined;
  const behind: Lie = (method) => (method === "eth_getBlockByNumber" ? GONE : undefined);
  const other: Lie = (method) =>
    method === "eth_getBlockByNumber" ? { hash: OTHER, timestamp: "0x1" } : undefined;
  const cases: [string, Lie[], number, boolean, number][] = [
    ["one endpoint", [same], 3, true, 0],
    ["the first block is final", [same, other], 1, true, 0],
    ["both have it", [same, same], 3, true, 0],
    ["one is behind", [same, behind], 3, false, 0],
    ["two of three have it", [same, behind, same], 3, true, 0],
    ["one has another block", [same, other], 3, false, 1],
  ];
  for (const [what, endpoints, confirmations, isFinal, suspected] of cases) {
    const { ctx, noted } = contextOf({}, { endpoints, network: { confirmations } });
    t.equal(await isFinalBlock(ctx, 50n, hashOfBlock(50n)), isFinal, what);
    t.equal(noted.suspected, suspected, what);
  }
});

t.test("endpoints at two blocks refuse for two reasons", async (t) => {
  const ahead: Lie = (method, [call, at]) =>
    at === "latest" ? answer({ head: 101n, ended: usedAt(101n) }, method, [call, at]) : undefined;
  const { ctx, noted } = contextOf({}, { endpoints: [() => undefined, ahead] });
  const refused = [{ record: recordOf(), text: "?" }];
  const [found] = await proveRefused(ctx, refused, new Refusals(), async () => [true]);
  t.same(found?.proof, { retryAfterMs: 500 }, "one sees that it was used: it may have been paid");
  t.equal(noted.suspected, 1);
});

t.test("several endpoints, and a payment that failed too often to be asked for", async (t) => {
  const ends = async (tooOften: boolean[]) => {
    const { ctx } = contextOf({}, { endpoints: [() => undefined, () => undefined] });
    const refused = tooOften.map((hasTooManyFaults, index) => ({
      record: recordOf({ ...AUTHORIZATION, nonce: word(BigInt(index)) }, { id: `pay_${index}` }),
      text: "?",
      hasTooManyFaults,
    }));
    const accepting = async () => tooOften.map(() => false);
    const found = await proveRefused(ctx, refused, new Refusals(), accepting);
    return found.map(({ proof }) => "outcome" in proof);
  };
  t.same(await ends([true, true]), [true, true]);
  t.same(await ends([true, false]), [false, false], "the other one may still be paid");
});

t.test("one endpoint repeats a simulation", async (t) => {
  const payer = (id: bigint, over: Over = {}) =>
    toBatchItem(recordOf({ ...AUTHORIZATION, nonce: word(id) }, over), 300_000n);
  const [first, second, ahead] = [payer(1n), payer(2n), payer(3n)];
  const sent = { ...first, sender: PAYEE };
  const fees = { maxFeeWei: 7n, priorityFeeWei: 3n };
  const results = (successes: boolean[]) =>
    encodeFunctionResult({
      abi: multicall3Abi,
      functionName: "aggregate3",
      result: successes.map((success) => ({ success, returnData: "0x" as const })),
    });
  const calls: unknown[][] = [];
  const refusals = (items: (typeof first)[], answer: unknown, underway: (typeof first)[] = []) => {
    const { ctx } = contextOf({});
    return refusalsBy(ctx, items, { from: PAYEE, fees, ahead: underway })({
      call: async <T>(_method: string, params: unknown[]) => {
        calls.push(params);
        if (answer instanceof Error) throw answer;
        return answer as T;
      },
    });
  };
  const reverted = new ChainRefusal("execution reverted", 3, "0x");
  t.same(await refusals([first], results([true])), [false]);
  t.same(await refusals([first], results([false])), [true]);
  t.same(await refusals([first, second], results([true, false])), [false, true]);
  t.same(await refusals([first, second], results([false, true])), [true, false]);
  t.same(
    await refusals([first, second], results([false, false, true]), [ahead]),
    [true, false],
    "after the debits that are in flight",
  );
  t.same(await refusals([first], reverted), [true], "it burns the gas of the whole simulation");
  await t.rejects(refusals([first, second], reverted), "of several, it may be any of them");
  await t.rejects(refusals([first], unreachable()), "no answer is no refusal");
  calls.length = 0;
  t.same(await refusals([sent], "0x"), [false]);
  t.match(calls, [
    [{ from: PAYEE, to: sent.call.target, data: sent.call.data, maxFeePerGas: "0x7" }],
  ]);
  t.same(await refusals([sent], reverted), [true], "as it is sent, not through Multicall3");
  t.same(await refusals([sent, second], results([true, true])), [false, false]);
});

// Expiry.

t.test("expired unused", async (t) => {
  const expire = (
    world: World,
    around: Surroundings,
    behind = 0n,
    over: Partial<SignedAuthorization>[] = [{}],
  ) => {
    const { ctx } = contextOf(world, around);
    const records = over.map((one) => recordOf({ ...AUTHORIZATION, validBefore: 190n, ...one }));
    return proveExpired(ctx, records, behind);
  };
  const network = { confirmations: 3 };
  const denying: Lie = () => undefined;
  const usedSays: Lie = (method) =>
    method === "eth_call"
      ? encodeFunctionResult({
          abi: multicall3Abi,
          functionName: "aggregate3",
          result: [{ success: true, returnData: word(1n) }],
        })
      : undefined;
  const elsewhere: Lie = (method) =>
    method === "eth_getBlockByNumber" ? { hash: OTHER, timestamp: "0x0" } : undefined;
  const without: Lie = (method) => (method === "eth_getBlockByNumber" ? GONE : undefined);
  const down: Lie = () => unreachable();
  const at = (times: Record<string, bigint>): World => ({ times });
  const expired = {
    ...KEY,
    status: "expired",
    isFinal: true,
    reason: "invalid_exact_evm_payload_authorization_valid_before",
  };
  const cases: [string, World, Surroundings, bigint, object[]][] = [
    [
      "at its last second in a final block",
      at({ "98": 190n }),
      { network },
      0n,
      [
        {
          ...expired,
          proof: { kind: "state", block: "98", blockHash: hashOfBlock(98n), timestamp: "190" },
          message: /block 98/,
        },
      ],
    ],
    ["a second before", at({ "98": 189n }), { network }, 0n, []],
    ["only the newest block is late enough", at({ "98": 1n }), { network }, 0n, []],
    ["as of an older block", at({ "96": 190n }), { network }, 2n, [{ proof: { block: "96" } }]],
    ["as of an older block that is too early", at({ "96": 1n }), { network }, 2n, []],
    ["used meanwhile", { ended: usedAt(60n) }, { network }, 0n, []],
    ["used after that block", { ended: usedAt(99n) }, { network }, 0n, [expired]],
    ["without a state", { ended: { [nonce]: "mute" } }, { network }, 0n, []],
    ["two endpoints agree", {}, { network, endpoints: [denying, denying] }, 0n, [expired]],
    ["one of two is down", {}, { network, endpoints: [denying, down] }, 0n, []],
    ["one of three is down", {}, { network, endpoints: [denying, denying, down] }, 0n, [expired]],
    ["one shows a use", {}, { network, endpoints: [denying, denying, usedSays] }, 0n, []],
    ["one is at another block", {}, { network, endpoints: [denying, elsewhere] }, 0n, []],
    ["one does not have the block", {}, { network, endpoints: [denying, without] }, 0n, []],
  ];
  for (const [what, world, around, behind, expected] of cases) {
    const found = await expire(world, around, behind);
    t.equal(found.length, expected.length, what);
    t.match(found, expected, what);
  }
  const { ctx, noted } = contextOf(at({ "98": 1n }), { network });
  t.same(await proveExpired(ctx, [recordOf()], 0n), []);
  t.equal(noted.witnessed, 0, "nothing to ask for");
  const some = await expire(
    { ended: { [word(2n)]: 60n } },
    { network },
    0n,
    [1n, 2n, 3n, 4n].map((id) => ({ nonce: word(id), validBefore: id === 1n ? 900n : 190n })),
  );
  t.same(
    some.map((one) => one.nonce),
    [word(3n), word(4n)],
    "each by its own time and state",
  );
});
