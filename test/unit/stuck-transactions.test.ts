// Goal: a transaction that is in no block is sent again, priced higher or given up exactly when it must be, and whatever nodes answer, its nonce is used once.
// Own process (its clock stands still in every test of the process).
import t from "tap";
import { parseTransaction, type Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { TIMINGS } from "../../server/core/timings.ts";
import { ChainRefusal, ChainUnreachable } from "../../server/infra/chain/errors.ts";
import type { EngineContext } from "../../server/plugins/settlement/context.ts";
import type { StoredAttempt } from "../../server/plugins/settlement/lane-store.ts";
import { Mempool, slotOf, type Slot } from "../../server/plugins/settlement/mempool.ts";
import { ARC } from "./payment-samples.ts";

const signer = privateKeyToAccount(`0x${"11".repeat(32)}`);
const LANE = signer.address.toLowerCase();
const TOKEN: Hex = `0x${"36".repeat(20)}`;
const HASH: Hex = `0x${"aa".repeat(32)}`;
const GWEI = 1_000_000_000n;
const refused = (text: string) => new ChainRefusal(text, -32000, undefined);
const REJECTED = refused("the transaction is invalid");
const UNKNOWN = new ChainUnreachable("no RPC endpoint accepted the transaction");

const attempt = (over: Partial<StoredAttempt> = {}): StoredAttempt => ({
  hash: HASH,
  attempt: 1,
  purpose: "work",
  answer: undefined,
  raw: "0xaa",
  maxFeeWei: 10n * GWEI,
  priorityFeeWei: GWEI,
  ...over,
});
const slotWith = (over: Partial<Slot> = {}, attempts = [attempt()]): Slot => ({
  ...slotOf(
    {
      nonce: 5n,
      to: TOKEN,
      calldata: "0x1234",
      gasLimit: 90_000n,
      attempts,
      items: [],
      sentBlock: 90n,
      included: undefined,
    },
    90n,
  ),
  lastSentMs: 1_000,
  ...over,
});

interface Setting {
  /** What the nodes answer to each send, in order; undefined accepts. */
  answers?: (Error | undefined)[];
  waited?: (signal: AbortSignal) => unknown;
  head?: { number: bigint; baseFeeWei: bigint } | undefined;
  nowMs?: number;
  caps?: { maxFeeWei: bigint; priorityFeeWei: bigint };
  estimate?: bigint | Error;
  hasNoKey?: boolean;
  isLeaseLost?: boolean;
  isDatabaseDown?: boolean;
  /** An attempt of that number is stored, which this process does not know; and what is stored. */
  isAttemptTaken?: boolean;
  stored?: object[];
  /** Transactions of ours that were final, by nonce. */
  final?: Record<string, string>;
  blockTimeMs?: number;
}

function world(setting: Setting = {}) {
  const done: string[] = [];
  const sent: Hex[] = [];
  const answers = [...(setting.answers ?? [])];
  const head = "head" in setting ? setting.head : { number: 100n, baseFeeWei: GWEI };
  const query = async (given: string | { text: string; values: unknown[] }, more?: unknown[]) => {
    const { text, values } =
      typeof given === "string" ? { text: given, values: more ?? [] } : given;
    if (setting.isDatabaseDown === true) throw new Error("the database is down");
    if (text.includes("SET answer")) done.push(`noted ${String(values.at(-1))}`);
    else if (text.startsWith("WITH lane")) done.push(`filler ${String(values[4])}`);
    else if (text.includes("INSERT INTO relayer_attempts") && text.startsWith("WITH held")) {
      const isStored = setting.isAttemptTaken !== true;
      done.push(`${isStored ? "stored" : "known"} ${String(values[6])} ${String(values[10])}`);
      return { rows: setting.isLeaseLost === true ? [] : [{ stored: isStored }] };
    } else if (text.includes("FROM relayer_transactions t JOIN relayer_attempts") && setting.stored)
      return { rows: setting.stored };
    else if (text.includes("a.raw FROM relayer_transactions")) {
      const rows = Object.entries(setting.final ?? {}).map(([nonce, raw]) => ({
        nonce: BigInt(nonce),
        raw: Buffer.from(raw.slice(2), "hex"),
      }));
      return { rows, rowCount: rows.length };
    }
    return { rows: [], rowCount: setting.isLeaseLost === true ? 0 : 1 };
  };
  const note =
    (what: string) =>
    (...args: unknown[]) =>
      void done.push([what, ...args].join(" "));
  const ctx = {
    network: { ...ARC, blockTimeMs: setting.blockTimeMs ?? 500 },
    timings: TIMINGS,
    feeCaps: setting.caps ?? { maxFeeWei: 1_000n * GWEI, priorityFeeWei: 100n * GWEI },
    pool: { query },
    heads: {
      head,
      newestPossible: 101n,
      refresh: async () => head,
      expectNotification: () => note("awaited"),
    },
    rpc: {
      broadcast: async (raw: Hex) => {
        sent.push(raw);
        const answer = answers.shift();
        if (answer) throw answer;
      },
      broadcastAndWait: async (raw: Hex, signal: AbortSignal) => {
        sent.push(raw);
        return setting.waited?.(signal);
      },
      call: async (_: string, [transfer]: { from: string; to: string }[]) => {
        if (transfer?.from !== LANE || transfer.to !== LANE) throw new Error("not the lane's own");
        if (setting.estimate instanceof Error) throw setting.estimate;
        return `0x${(setting.estimate ?? 21_000n).toString(16)}`;
      },
    },
    meter: {
      resent: note("counted resent"),
      repriced: note("counted repriced"),
      givenUp: note("counted given up"),
    },
    log: {
      info: () => undefined,
      warn: (_: object, text: string) => done.push(`warned: ${text}`),
      error: (_: object, text: string) => done.push(`error: ${text}`),
    },
    fault: async (point: string) => void done.push(point),
  } as unknown as EngineContext;
  const mempool = new Mempool({
    ctx,
    lease: { chainId: ARC.chainId, address: LANE, owner: "me", epoch: 4n },
    signer: setting.hasNoKey === true ? undefined : signer,
    priorityFeeWei: async () => GWEI,
    onUnfunded: note("unfunded"),
    onLeaseLost: note("lease lost"),
    onRefused: note("refused"),
  });
  return { mempool, done, sent };
}

const clock = { ms: 2_000 };
t.beforeEach((t) => {
  clock.ms = 2_000;
  t.intercept(performance, "now", { value: () => clock.ms });
});

const NO_ANSWER = "warned: sent a transaction but got no response; it may have arrived";
const REFUSED = "error: the node rejects a stored transaction";

t.test("what a node's answer to a send means", async (t) => {
  const before = { count: 2, sinceMs: 500 };
  const cases: {
    what: string;
    answer: Error | undefined;
    done: string[];
    underpriced?: boolean;
    refusals?: Slot["refusals"];
    answered: string | undefined;
  }[] = [
    { what: "accepted", answer: undefined, done: ["noted taken"], answered: "taken" },
    { what: "known", answer: refused("already known"), done: ["noted taken"], answered: "taken" },
    {
      what: "in the pool, and the wait for its block is over",
      answer: refused("The transaction was added to the mempool but wasn't processed in 4s."),
      done: ["noted taken"],
      answered: "taken",
    },
    {
      what: "no answer",
      answer: UNKNOWN,
      done: [NO_ANSWER],
      underpriced: true,
      refusals: before,
      answered: undefined,
    },
    {
      what: "rejected for good",
      answer: REJECTED,
      done: [REFUSED, "noted rejected"],
      underpriced: true,
      refusals: { count: 3, sinceMs: 500 },
      answered: "rejected",
    },
    {
      what: "rejected by one node, no answer of another",
      answer: new ChainUnreachable("one refused", { cause: REJECTED }),
      done: [REFUSED, "noted rejected"],
      underpriced: true,
      refusals: { count: 3, sinceMs: 500 },
      answered: "rejected",
    },
    {
      what: "no answer of any, for another cause",
      answer: new ChainUnreachable("none", { cause: new Error("ECONNREFUSED") }),
      done: [NO_ANSWER],
      underpriced: true,
      refusals: before,
      answered: undefined,
    },
    {
      what: "its nonce is used: nothing permanent",
      answer: refused("nonce too low"),
      done: ["noted nonce_too_low"],
      underpriced: true,
      answered: "nonce_too_low",
    },
    {
      what: "too cheap for the node",
      answer: refused("max fee per gas less than block base fee"),
      done: ["noted fee_too_low"],
      underpriced: true,
      answered: "fee_too_low",
    },
    {
      what: "too cheap to replace another",
      answer: refused("replacement transaction underpriced"),
      done: ["noted replacement_underpriced"],
      underpriced: true,
      answered: "replacement_underpriced",
    },
    {
      what: "the lane has no money for gas",
      answer: refused("insufficient funds for gas * price + value"),
      done: ["unfunded", "noted insufficient_gas_money"],
      underpriced: true,
      answered: "insufficient_gas_money",
    },
  ];
  for (const { what, answer, done, underpriced = false, refusals, answered } of cases) {
    const node = world({ answers: [answer] });
    const slot = slotWith({ refusals: { ...before }, underpriced: true });
    await node.mempool.send(slot);
    t.same(node.done, done, what);
    t.same(node.sent, ["0xaa"], what);
    t.same(
      [slot.underpriced, slot.refusals, slot.attempts[0]?.answer, slot.lastSentMs],
      [underpriced, refusals, answered, 2_000],
      what,
    );
  }
  for (const [text, underpriced] of [
    ["max fee per gas less than block base fee", true],
    ["replacement transaction underpriced", true],
    ["nonce too low", false],
    ["the transaction is invalid", false],
  ] as const) {
    const slot = slotWith();
    await world({ answers: [refused(text)] }).mempool.send(slot);
    t.equal(slot.underpriced, underpriced, text);
  }
  const first = slotWith();
  const node = world({ answers: [REJECTED, REJECTED] });
  await node.mempool.send(first);
  clock.ms = 3_000;
  await node.mempool.send(first);
  t.same(first.refusals, { count: 2, sinceMs: 2_000 });
  t.same(node.done, [REFUSED, "noted rejected", REFUSED], "the same answer is stored once");
});

t.test("a transaction as it was stored", async (t) => {
  const { mined, finishing, ...tx } = slotWith();
  t.same([mined, finishing], [false, false]);
  const block = { number: 95n } as unknown as NonNullable<Slot["included"]>;
  t.equal(slotOf({ ...tx, included: block }, 90n).mined, true, "it was in a block already");
});

t.test("the newest attempt is sent", async (t) => {
  const { mempool, sent } = world();
  await mempool.send(slotWith({}, [attempt(), attempt({ attempt: 2, raw: "0xbb" })]));
  t.same(sent, ["0xbb"]);
  await mempool.send(slotWith({}, []));
  t.same(sent, ["0xbb"], "there is none");
});

t.test("an answer is not stored where it is of no use", async (t) => {
  for (const over of [{ mined: true }, { shown: {} as NonNullable<Slot["shown"]> }]) {
    const { mempool, done } = world();
    const slot = slotWith(over);
    await mempool.send(slot);
    t.same([done, slot.attempts[0]?.answer], [[], "taken"], "it is in a block");
  }
  const { mempool, done } = world({ isDatabaseDown: true });
  await mempool.send(slotWith());
  t.same(done, ["warned: could not store a node's response"], "and a failure to store it is none");
});

const receipt = {
  transactionHash: HASH,
  blockHash: `0x${"0b".repeat(32)}`,
  blockNumber: "0x64",
  logs: [],
};
t.test("a send that waits for its block", async (t) => {
  const slot = slotWith();
  const node = world({
    waited: () => {
      t.ok(slot.waiting, "it can be ended");
      return receipt;
    },
  });
  await node.mempool.sendAndWait(slot);
  t.same([slot.shown, slot.waiting, node.done], [receipt, undefined, ["awaited"]]);
  const other = slotWith();
  await world({ waited: () => HASH }).mempool.sendAndWait(other);
  t.equal(other.shown, undefined, "a hash is no receipt");
  const ended = slotWith();
  const stopped = world({
    waited: () => {
      ended.waiting?.abort();
      return receipt;
    },
  });
  await stopped.mempool.sendAndWait(ended);
  t.same(
    [ended.shown, ended.attempts[0]?.answer, ended.waiting, stopped.done],
    [undefined, undefined, undefined, ["awaited"]],
    "the wait was ended: nothing is known",
  );
  const later = new AbortController();
  const again = slotWith();
  await world({
    waited: () => {
      again.waiting = later;
      return receipt;
    },
  }).mempool.sendAndWait(again);
  t.equal(again.waiting, later, "a newer wait goes on");
});

/** What is done with a transaction that is in no block. */
async function nudge(setting: Setting, slot: Slot, { isNext = true, progress = 80n } = {}) {
  clock.ms = setting.nowMs ?? 2_000;
  const node = world(setting);
  await node.mempool.nudge(slot, isNext, progress);
  const resent = node.sent.length > 0 && slot.attempts.length === 1;
  const isVoid = slot.attempts.at(-1)?.purpose === "void";
  return {
    ...node,
    what:
      slot.attempts.length > 1
        ? isVoid
          ? "given up"
          : "priced higher"
        : resent
          ? "sent again"
          : "nothing",
  };
}
const taken = (over: Partial<StoredAttempt> = {}) => [attempt({ answer: "taken", ...over })];

t.test("when a transaction is sent again or priced higher", async (t) => {
  const at = (number: bigint, baseFeeWei = GWEI) => ({ head: { number, baseFeeWei } });
  const low = { caps: { maxFeeWei: 11n * GWEI, priorityFeeWei: 2n * GWEI } };
  const cases: [string, Setting, Slot, { isNext?: boolean; progress?: bigint }, string][] = [
    ["just sent", { nowMs: 2_499 }, slotWith(), {}, "nothing"],
    ["long enough ago", { nowMs: 2_500 }, slotWith(), {}, "sent again"],
    ["three slow blocks", { nowMs: 6_999, blockTimeMs: 2_000 }, slotWith(), {}, "nothing"],
    ["after three slow blocks", { nowMs: 7_000, blockTimeMs: 2_000 }, slotWith(), {}, "sent again"],
    [
      "refused: not as late as three slow blocks",
      { nowMs: 2_500, blockTimeMs: 2_000 },
      slotWith({ refusals: { count: 1, sinceMs: 0 } }),
      {},
      "sent again",
    ],
    ["never sent", { nowMs: 9_000 }, slotWith({ lastSentMs: 0 }), {}, "nothing"],
    ["no block is known", { nowMs: 9_000, head: undefined }, slotWith(), {}, "nothing"],
    ["no attempt", { nowMs: 9_000 }, slotWith({}, []), {}, "nothing"],
    ["six blocks passed over it", at(96n), slotWith({}, taken()), {}, "nothing"],
    ["seven blocks", at(97n), slotWith({}, taken()), {}, "priced higher"],
    ["another one must come first", at(97n), slotWith({}, taken()), { isNext: false }, "nothing"],
    ["not accepted yet", at(97n), slotWith(), {}, "nothing"],
    [
      "the one before it was included later",
      at(97n),
      slotWith({}, taken()),
      { progress: 91n },
      "nothing",
    ],
    [
      "seven blocks since the one before it",
      at(98n),
      slotWith({}, taken()),
      { progress: 91n },
      "priced higher",
    ],
    [
      "it offers less than a block costs",
      at(91n, 11n * GWEI),
      slotWith({}, taken()),
      {},
      "priced higher",
    ],
    ["the same, before a block", at(90n, 11n * GWEI), slotWith({}, taken()), {}, "nothing"],
    [
      "it offers exactly what a block costs",
      at(91n, 10n * GWEI),
      slotWith({}, taken()),
      {},
      "nothing",
    ],
    ["a node calls it too cheap", at(91n), slotWith({ underpriced: true }), {}, "priced higher"],
    ["the same block again", at(90n), slotWith({ underpriced: true }), {}, "nothing"],
    ["the caps leave no room", { ...at(97n), ...low }, slotWith({}, taken()), {}, "nothing"],
    [
      "the caps leave no room: sent again",
      { ...at(97n), ...low, nowMs: 9_000 },
      slotWith({}, taken()),
      {},
      "sent again",
    ],
    ["the key is elsewhere", { ...at(97n), hasNoKey: true }, slotWith({}, taken()), {}, "nothing"],
    [
      "the key is elsewhere: sent again",
      { ...at(97n), hasNoKey: true, nowMs: 9_000 },
      slotWith({}, taken()),
      {},
      "sent again",
    ],
  ];
  for (const [what, setting, slot, order, expected] of cases) {
    const found = await nudge(setting, slot, order);
    t.equal(found.what, expected, what);
    if (expected === "sent again") t.ok(found.done.includes("counted resent"), what);
    else t.notOk(found.done.includes("counted resent"), what);
  }
});

t.test("a higher price keeps nonce and effect", async (t) => {
  const slot = slotWith({ underpriced: true, refusals: { count: 1, sinceMs: 1_900 } }, [
    attempt({ attempt: 3, answer: "taken" }),
    attempt({ attempt: 1, answer: "taken" }),
  ]);
  const node = world();
  clock.ms = 2_000;
  await node.mempool.nudge(slot, true, 80n);
  const last = slot.attempts.at(-1);
  t.match(last, { attempt: 4, purpose: "work", answer: "taken" });
  t.match(parseTransaction(last?.raw ?? "0x"), {
    nonce: 5,
    to: TOKEN,
    data: "0x1234",
    gas: 90_000n,
    chainId: ARC.chainId,
    maxFeePerGas: last?.maxFeeWei,
  });
  t.ok((last?.maxFeeWei ?? 0n) > 11n * GWEI);
  t.same(node.done, ["stored 4 work", "counted repriced", "noted taken"]);
  t.same(node.sent, [last?.raw]);
  t.same([slot.underpriced, slot.refusals, slot.sentAtBlock], [false, undefined, 101n]);
  const silent = slotWith({ underpriced: true });
  await world({ answers: [UNKNOWN] }).mempool.nudge(silent, true, 80n);
  t.same([silent.attempts.length, silent.underpriced], [2, false], "no answer to the higher price");
  const lost = slotWith({ underpriced: true });
  const other = world({ isLeaseLost: true });
  await other.mempool.nudge(lost, true, 80n);
  t.same([lost.attempts.length, other.done], [1, ["stored 2 work", "lease lost"]], "not sent");
});

t.test("an attempt that is stored already", async (t) => {
  const same = slotWith({ underpriced: true });
  await world().mempool.nudge(same, true, 80n);
  const [first, second] = same.attempts;
  if (!first || !second) throw new Error("nothing was stored");
  // Long enough to send again. The fees are the same: the same bytes.
  clock.ms = 60_000;
  const again = slotWith({ underpriced: true }, [first]);
  again.attempts.unshift({ ...second, attempt: 1 });
  again.attempts[1] = { ...first, attempt: 1 };
  const node = world();
  await node.mempool.nudge(again, true, 80n);
  t.same(node.done, ["counted resent", "noted taken"], "not stored again, and the newest is sent");
  t.same(node.sent, ["0xaa"]);

  const lost = slotWith({ underpriced: true });
  const row = {
    nonce: 5n,
    to_address: TOKEN,
    calldata: Buffer.from("1234", "hex"),
    gas_limit: 90_000n,
    sent_block: 90n,
    mined_hash: null,
    block_number: null,
    block_hash: null,
  };
  const stored = [first, second].map(({ hash, attempt: number, purpose, raw, ...fees }) => ({
    ...row,
    hash,
    attempt: number,
    purpose,
    answer: null,
    raw: Buffer.from(raw.slice(2), "hex"),
    max_fee_wei: fees.maxFeeWei,
    priority_fee_wei: fees.priorityFeeWei,
  }));
  const other = world({ isAttemptTaken: true, stored });
  await other.mempool.nudge(lost, true, 80n);
  t.same(
    lost.attempts.map(({ hash }) => hash),
    [first.hash, second.hash],
    "the response to its write was lost: it is known now",
  );
  t.same(other.sent, [second.raw], "and sent");
});

t.test("the price of a void attempt follows the void ones", async (t) => {
  const slot = slotWith({ underpriced: true }, [
    attempt({ maxFeeWei: GWEI / 100n, priorityFeeWei: GWEI / 100n }),
    attempt({ attempt: 2, purpose: "void", answer: "taken" }),
  ]);
  await world({ estimate: 30_000n }).mempool.nudge(slot, true, 80n);
  const last = slot.attempts.at(-1);
  t.match(last, { purpose: "void", attempt: 3 }, "not capped by the first one's low price");
  const sent = parseTransaction(last?.raw ?? "0x");
  t.match(sent, { nonce: 5, to: LANE, gas: 37_500n }, "with the gas that a rollup asks for");
});

t.test("no attempt costs more than fifty times the first", async (t) => {
  const pricedAfter = async (firstWei: bigint) => {
    const slot = slotWith({ underpriced: true }, [
      attempt({ maxFeeWei: firstWei }),
      attempt({ attempt: 2 }),
    ]);
    await world().mempool.nudge(slot, true, 80n);
    return slot.attempts.length === 3;
  };
  // The last one's 10 gwei become 11.25 gwei and a wei.
  t.equal(await pricedAfter(225_000_000n), false);
  t.equal(await pricedAfter(225_000_001n), true);
});

t.test("a transaction that nodes reject for good is given up", async (t) => {
  const hopeless = (count: number, purpose: "work" | "void" = "work", answer?: string) =>
    slotWith({ refusals: { count, sinceMs: 10_000 }, lastSentMs: 60_000 }, [
      attempt({ purpose, answer }),
    ]);
  const cases: [string, Setting, Slot, string][] = [
    ["three times, long enough", { nowMs: 14_000 }, hopeless(3), "given up"],
    ["not long enough", { nowMs: 13_999 }, hopeless(3), "nothing"],
    ["twice", { nowMs: 50_000 }, hopeless(2), "nothing"],
    ["its replacement, not long enough", { nowMs: 39_999 }, hopeless(3, "void"), "nothing"],
    ["its replacement", { nowMs: 40_000 }, hopeless(3, "void"), "given up"],
    ["never refused", { nowMs: 50_000 }, slotWith({ lastSentMs: 60_000 }), "nothing"],
    ["without a key", { nowMs: 50_000, hasNoKey: true }, hopeless(3), "nothing"],
    ["without a key: sent again", { nowMs: 62_000, hasNoKey: true }, hopeless(3), "sent again"],
    ["without the lease", { nowMs: 50_000, isLeaseLost: true }, hopeless(3), "nothing"],
  ];
  for (const [what, setting, slot, expected] of cases)
    t.equal((await nudge(setting, slot)).what, expected, what);
  const slot = hopeless(3);
  slot.items = [{} as Slot["items"][number], {} as Slot["items"][number]];
  const node = await nudge({ nowMs: 14_000, estimate: 30_000n }, slot);
  t.same(node.done, [
    "void-signed",
    "stored 2 void",
    "refused 2",
    "counted given up",
    "error: the nodes reject a transaction for good: its nonce is used for a transfer to the lane itself",
    "void-persisted",
    "noted taken",
    "void-broadcast",
  ]);
  const last = slot.attempts.at(-1);
  const sent = parseTransaction(last?.raw ?? "0x");
  t.match(sent, { nonce: 5, to: LANE, gas: 37_500n }, "a quarter more than a rollup asks for");
  t.equal(sent.data, undefined);
  const gasOf = async (estimate: bigint | Error) => {
    const one = hopeless(3);
    await nudge({ nowMs: 14_000, estimate }, one);
    return parseTransaction(one.attempts.at(-1)?.raw ?? "0x").gas;
  };
  t.equal(await gasOf(21_000n), 21_000n);
  t.equal(await gasOf(21_001n), 26_251n);
  t.equal(await gasOf(new Error("no method")), 21_000n);
});

t.test("giving up outbids what a node may still hold", async (t) => {
  const feeOf = async (attempts: StoredAttempt[], caps?: Setting["caps"]) => {
    const slot = slotWith({ refusals: { count: 3, sinceMs: 0 }, lastSentMs: 60_000 }, attempts);
    await nudge({ nowMs: 50_000, ...(caps && { caps }) }, slot);
    return slot.attempts.at(-1)?.maxFeeWei ?? 0n;
  };
  const usual = 3n * GWEI;
  t.equal(await feeOf([attempt({ answer: "rejected" })]), usual, "rejected: the usual price");
  t.ok((await feeOf([attempt({ answer: "taken" })])) > 11n * GWEI, "accepted once");
  t.ok((await feeOf([attempt()])) > 11n * GWEI, "no answer: it may be held");
  t.ok(
    (await feeOf([attempt({ answer: "taken" }), attempt({ attempt: 2, answer: "rejected" })])) >
      11n * GWEI,
    "an earlier one was accepted",
  );
  t.equal(
    await feeOf([attempt()], { maxFeeWei: 11n * GWEI, priorityFeeWei: GWEI }),
    usual,
    "the caps leave no room",
  );
});

t.test("the chain lost our transactions", async (t) => {
  const fill = async (setting: Setting, from: bigint, to: bigint) => {
    const node = world(setting);
    const fillers = await node.mempool.fillGap(from, to);
    const nonces = node.sent.map((raw) =>
      raw.length < 20 ? raw : (parseTransaction(raw).nonce ?? 0),
    );
    return { fillers, nonces, done: node.done.slice(1), alarm: node.done[0], sent: node.sent };
  };
  const final = { "5": "0xa5", "7": "0xa7" };
  const whole = await fill({ final }, 5n, 8n);
  t.match(whole.alarm, /the chain lost our transactions/);
  t.same(
    [whole.fillers, whole.nonces, whole.done],
    [1, ["0xa5", 6, "0xa7"], ["filler 6"]],
    "final ones again, and the nonce without one is used up",
  );
  t.match(parseTransaction(whole.sent[1] ?? "0x"), {
    nonce: 6,
    to: LANE,
    gas: 21_000n,
    maxFeePerGas: 3n * GWEI,
  });
  const kept: [string, Error, number][] = [
    ["known", refused("already known"), 0],
    ["no answer", UNKNOWN, 0],
    ["its nonce is used", refused("nonce too low"), 0],
    ["rejected for good", REJECTED, 1],
    ["too cheap by now", refused("max fee per gas less than block base fee"), 1],
  ];
  for (const [what, answer, fillers] of kept)
    t.equal((await fill({ final, answers: [answer] }, 5n, 6n)).fillers, fillers, what);
  t.same((await fill({ final, hasNoKey: true }, 5n, 8n)).nonces, ["0xa5"], "without a key");
  const lost = await fill({ isLeaseLost: true }, 5n, 8n);
  t.same([lost.fillers, lost.nonces], [0, []], "without the lease nothing is sent");
  t.equal((await fill({}, 0n, 100n)).fillers, 64, "at most");
  t.equal((await fill({}, 5n, 5n)).fillers, 0);
});
