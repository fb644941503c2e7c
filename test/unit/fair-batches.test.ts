// Goal: whatever is queued, batches keep their bounds and their order, no row is sent twice or lost, and none waits for ever.
import * as fc from "fast-check";
import t from "tap";
import type { Address } from "viem";
import {
  isThirdParty,
  RESERVED_PLACES,
  MAX_BATCH,
  MAX_IN_FLIGHT,
  SOLO_PLACES,
  toBatchItem,
  type BatchItem,
} from "../../server/plugins/settlement/batch.ts";
import { Collector } from "../../server/plugins/settlement/sender.ts";
import { inQueueOrder, type ClaimRoom } from "../../server/plugins/settlement/store.ts";
import type { SettlementRecord } from "../../server/plugins/settlement/types.ts";
import { AUTHORIZATION, recordOf } from "./payment-samples.ts";

const GAS_CAP = 300_000n;
const GATHER_MS = 50;
const PAYERS: readonly Address[] = [`0x${"a1".repeat(20)}`, `0x${"a2".repeat(20)}`];

interface Wish {
  /** 0 withdrawals, 1 agents' payments, 2 payments of third parties. */
  class: number;
  turn: number;
  solo: boolean;
  /** The signature of a contract wallet: it goes alone too, but the queue does not know that. */
  isWallet: boolean;
  /** No log names it: two of these with the same transfer must not share a transaction. */
  isNameless: boolean;
  payer: number;
  value: number;
}

/** An ordinary payment of a third party. */
const PLAIN: Wish = {
  class: 2,
  turn: 0,
  solo: false,
  isWallet: false,
  isNameless: false,
  payer: 0,
  value: 0,
};

const rarely = fc.nat({ max: 9 }).map((one) => one === 0);
const wish: fc.Arbitrary<Wish> = fc.record({
  class: fc.constantFrom(0, 1, 1, 2, 2, 2, 2),
  turn: fc.nat({ max: 30 }),
  solo: rarely,
  isWallet: rarely,
  isNameless: fc.boolean(),
  payer: fc.nat({ max: 1 }),
  value: fc.nat({ max: 1 }),
});

function rowOf(
  { class: rank, turn, solo, isWallet, isNameless, payer, value }: Wish,
  index: number,
): SettlementRecord {
  const digits = index.toString(16).padStart(64, "0");
  return recordOf(
    {
      ...AUTHORIZATION,
      from: PAYERS[payer] ?? AUTHORIZATION.from,
      value: BigInt(value + 1),
      nonce: isNameless ? `permit2:0x${digits}` : `0x${digits}`,
      ...(isNameless && { terms: { scheme: "exact-permit2" as const } }),
      signature: isWallet ? `0x${"ab".repeat(100)}` : AUTHORIZATION.signature,
    },
    {
      id: `pay_${index}`,
      kind: rank === 0 ? "withdrawal" : rank === 1 ? "spend" : "facilitated",
      agentId: rank === 2 ? null : "agt_1",
      solo,
      turn: new Date(turn * 1_000),
      createdAt: new Date(index),
    },
  );
}

/** A copy of the order and limits of the queue's claim statement. */
function claimed(waiting: SettlementRecord[], room: ClaimRoom): SettlementRecord[] {
  const first = (count: number, is: (row: SettlementRecord) => boolean) =>
    waiting.filter(is).sort(inQueueOrder).slice(0, count);
  const own = first(room.batchable, (row) => !row.solo && row.class < 2);
  return [
    ...own,
    ...first(room.ownSolo, (row) => row.solo && row.class < 2),
    ...first(Math.max(room.batchable - own.length, 0), (row) => !row.solo && row.class === 2),
    ...first(room.thirdPartySolo, (row) => row.solo && row.class === 2),
  ];
}

/** One lane, and blocks that include the oldest of its transactions as far as their gas goes. */
class Lane {
  readonly waiting: SettlementRecord[];
  readonly held = new Map<string, SettlementRecord>();
  readonly ahead: BatchItem[][] = [];
  readonly sent: BatchItem[][] = [];
  readonly collector: Collector;
  readonly #blockGas: bigint;
  /** Stands still, until a batch that is not full is to leave. */
  nowMs = 0;

  constructor(rows: SettlementRecord[], blockGas: bigint) {
    this.waiting = rows;
    this.#blockGas = blockGas;
    this.collector = new Collector({
      gasCapPerItem: GAS_CAP,
      gatherMs: GATHER_MS,
      claim: async (room) => this.#claim(room),
      inFlight: () => this.ahead.length,
      ahead: () => this.ahead,
      blockGas: () => blockGas,
    });
  }

  #claim(room: ClaimRoom): SettlementRecord[] {
    for (const count of Object.values(room))
      if (!Number.isInteger(count) || count < 0 || count > 500) throw new Error(`room: ${count}`);
    const rows = claimed(this.waiting, room);
    const taken = new Set(rows);
    this.waiting.splice(0, this.waiting.length, ...this.waiting.filter((row) => !taken.has(row)));
    for (const row of rows) this.held.set(row.id, row);
    return rows;
  }

  claim(): Promise<number> {
    return this.collector.claim(this.nowMs);
  }

  /** What leaves at once. */
  takeReady(): BatchItem[] | undefined {
    return this.collector.take(this.nowMs);
  }

  /** What leaves when the batch has gathered long enough. */
  takeBatch(): BatchItem[] | undefined {
    this.nowMs += GATHER_MS;
    return this.collector.take(this.nowMs);
  }

  send(batch: BatchItem[], limit: number): void {
    for (const { record } of batch)
      if (!this.held.delete(record.id)) throw new Error(`${record.id} was not held`);
    this.#checkBounds(batch, limit);
    this.#checkOrder(batch);
    this.ahead.push(batch);
    this.sent.push(batch);
  }

  #checkBounds(batch: readonly BatchItem[], limit: number): void {
    const [first] = batch;
    if (!first) throw new Error("a batch of none");
    if (batch.length > 1 && batch.some(({ solo }) => solo)) throw new Error("not alone");
    if (batch.length > limit) throw new Error(`${batch.length} of ${limit}`);
    if (this.ahead.length >= MAX_IN_FLIGHT) throw new Error("too many in flight");
    const traces = batch.flatMap(({ trace }) => trace ?? []);
    if (new Set(traces).size < traces.length) throw new Error("two with the same transfer");
    if (!batch.every(isThirdParty)) return;
    if (this.ahead.length >= MAX_IN_FLIGHT - RESERVED_PLACES)
      throw new Error("no place is kept for agents");
    const isThirdPartySolo = ([item]: readonly BatchItem[]) =>
      item?.solo === true && item.record.class === 2;
    if (isThirdPartySolo(batch) && this.ahead.filter(isThirdPartySolo).length >= SOLO_PLACES)
      throw new Error("too many alone");
    if (this.#isTooMuch(batch)) throw new Error("too much gas");
  }

  /** True if this batch and all earlier ones together need more gas than two blocks have. */
  #isTooMuch(batch: readonly BatchItem[]): boolean {
    const gas = this.ahead.reduce((sum, one) => sum + gasOf(one), 0n);
    return gas > 0n && gas + gasOf(batch) > 2n * this.#blockGas;
  }

  /** Every row left behind comes later in the order, or has the same transfer as one that is sent. */
  #checkOrder(batch: readonly BatchItem[]): void {
    const last = batch.at(-1);
    if (!last) return;
    const traces = new Set(batch.map(({ trace }) => trace));
    for (const [index, { record }] of batch.entries()) {
      const next = batch[index + 1];
      if (next && inQueueOrder(record, next.record) > 0) throw new Error("not by turn");
    }
    for (const row of this.held.values()) {
      const { terms, asset, from, to, value, signature } = row.authorization;
      const isAlone = row.solo || signature.length > 2 + 2 * 65;
      if (isAlone !== last.solo || inQueueOrder(row, last.record) >= 0) continue;
      if (isAlone && row.class === 2 && this.#isTooMuch([toBatchItem(row, GAS_CAP)])) continue;
      const trace = terms && `${asset} ${from} ${to} ${value}`;
      if (!last.solo && trace && traces.has(trace.toLowerCase())) continue;
      throw new Error(`${row.id} was passed over by ${last.record.id}`);
    }
  }

  /** Includes at least one transaction, or nothing would ever move. */
  mine(): void {
    let gas = 0n;
    do {
      const [next] = this.ahead.splice(0, 1);
      gas += gasOf(next ?? []) + gasOf(this.ahead[0] ?? []);
    } while (this.ahead.length > 0 && gas <= this.#blockGas);
  }
}

/** Computed independently: 60,000 for the transaction, each item's own gas, and its bytes at 16. */
const gasOf = (batch: readonly BatchItem[]): bigint =>
  batch.length === 0
    ? 0n
    : batch.reduce(
        (sum, { gas, call }) => sum + gas + BigInt((call.data.length - 2) / 2) * 16n,
        0n,
      ) + 60_000n;

type Step = "claim" | "ready" | "sendBatch" | "mine" | "shrink" | "grow" | "give back";

async function drain(lane: Lane, steps: readonly Step[]): Promise<void> {
  let limit = MAX_BATCH;
  const { collector } = lane;
  const ready = () => {
    for (let batch = lane.takeReady(); batch; batch = lane.takeReady()) lane.send(batch, limit);
  };
  const sendBatch = () => {
    const batch = lane.takeBatch();
    if (batch) lane.send(batch, limit);
  };
  const take: Record<Step, () => unknown> = {
    claim: () => lane.claim(),
    ready,
    sendBatch,
    mine: () => lane.mine(),
    shrink: () => {
      collector.shrink(limit);
      limit = Math.max(Math.floor(limit / 4), 1);
    },
    grow: () => {
      collector.grow();
      limit = Math.min(limit * 2, MAX_BATCH);
    },
    "give back": () => {
      for (const { record } of collector.empty()) {
        lane.held.delete(record.id);
        lane.waiting.push(record);
      }
    },
  };
  for (const step of steps) await take[step]();
  // No further rows arrive: each round mines a block until all rows have been sent.
  for (let round = 0; lane.waiting.length + lane.held.size > 0; round += 1) {
    if (round > 400) throw new Error(`${lane.held.size} and ${lane.waiting.length} wait for ever`);
    await lane.claim();
    ready();
    sendBatch();
    lane.mine();
  }
}

const steps = fc.array(
  fc.constantFrom<Step>(
    "claim",
    "claim",
    "ready",
    "sendBatch",
    "mine",
    "shrink",
    "grow",
    "give back",
  ),
  { maxLength: 25 },
);

t.test("bounds, order and fairness, whatever is queued", async (t) => {
  let batches = 0;
  let shared = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(wish, { minLength: 1, maxLength: 60, size: "max" }),
      steps,
      fc.constantFrom(30_000_000n, 2_000_000n, 100_000n),
      async (wishes, steps, blockGas) => {
        const lane = new Lane(wishes.map(rowOf), blockGas);
        await drain(lane, steps);
        const carried = lane.sent.flat().map(({ record }) => record.id);
        batches += lane.sent.length;
        shared += lane.sent.filter(({ length }) => length > 1).length;
        return carried.length === wishes.length && new Set(carried).size === wishes.length;
      },
    ),
    { numRuns: 300 },
  );
  t.ok(batches > 500 && shared > 100, `${batches} batches, ${shared} of them shared`);
});

t.test("a flood leaves in full batches, and no batch exceeds the limit", async (t) => {
  const lane = new Lane(
    Array.from({ length: 950 }, (_, index) => rowOf({ ...PLAIN, turn: index }, index)),
    10n ** 12n,
  );
  await drain(lane, ["claim", "ready"]);
  t.same(
    lane.sent.map(({ length }) => length),
    [...Array.from({ length: 9 }, () => MAX_BATCH), 50],
  );
  t.same(
    lane.sent.flat().map(({ record }) => record.id),
    Array.from({ length: 950 }, (_, index) => `pay_${index}`),
    "in the order of arrival",
  );
});

t.test("third parties leave a place to agents, and solo payments to the others", async (t) => {
  for (const [solo, places] of [
    [true, SOLO_PLACES],
    [false, MAX_IN_FLIGHT - RESERVED_PLACES],
  ] as const) {
    const rows = Array.from({ length: 40 }, (_, index) => rowOf({ ...PLAIN, solo }, index));
    const lane = new Lane(rows, 10n ** 12n);
    for (let times = 0; times < 4; times += 1) lane.collector.shrink(MAX_BATCH);
    const sendAll = async () => {
      await lane.claim();
      for (let batch = lane.takeReady(); batch; batch = lane.takeReady()) lane.send(batch, 1);
    };
    for (let round = 0; round < 3; round += 1) await sendAll();
    t.equal(lane.ahead.length, places);
    lane.waiting.push(rowOf({ ...PLAIN, class: 1, turn: 99 }, 40));
    await sendAll();
    t.equal(lane.ahead.length, places + 1, "an agent's payment");
  }
});

t.test("a withdrawal is in the next batch, however many came before", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(wish, { maxLength: 40 }), wish, async (wishes, late) => {
      const rows = wishes.map((one, index) =>
        rowOf({ ...one, solo: false, isWallet: false }, index),
      );
      const lane = new Lane(rows, 30_000_000n);
      await lane.claim();
      const id = wishes.length;
      const mine = { ...late, class: 0, solo: false, isWallet: false, isNameless: false, turn: 99 };
      lane.waiting.push(rowOf(mine, id));
      await lane.claim();
      const next = lane.takeBatch() ?? [];
      return next.some(({ record }) => record.id === `pay_${id}`);
    }),
    { numRuns: 100 },
  );
});

t.test("a single payment leaves an idle lane at once; under load it gathers", async (t) => {
  const lane = new Lane([rowOf(PLAIN, 0)], 30_000_000n);
  await lane.claim();
  t.equal(lane.takeReady()?.length, 1, "alone on an idle lane");

  lane.waiting.push(rowOf(PLAIN, 1), rowOf(PLAIN, 2));
  await lane.claim();
  t.equal(lane.takeReady(), undefined, "two gather");
  lane.nowMs += GATHER_MS - 1;
  lane.waiting.push(rowOf(PLAIN, 3));
  await lane.claim();
  t.equal(lane.takeReady(), undefined);
  lane.nowMs += 1;
  t.equal(lane.takeReady()?.length, 3, "no longer than since the first of them");

  lane.waiting.push(rowOf(PLAIN, 4));
  await lane.claim();
  t.equal(lane.takeReady(), undefined, "after a shared batch a single one gathers too");
  t.equal(lane.takeBatch()?.length, 1);
  lane.nowMs += 8 * GATHER_MS;
  lane.waiting.push(rowOf(PLAIN, 5));
  await lane.claim();
  t.equal(lane.takeReady()?.length, 1, "two blocks after a shared batch the load is over");

  lane.ahead.push(lane.sent[0] ?? []);
  lane.waiting.push(rowOf(PLAIN, 6));
  await lane.claim();
  t.equal(lane.takeReady(), undefined, "behind another transaction it gathers");

  lane.waiting.push(rowOf({ ...PLAIN, class: 0 }, 7));
  await lane.claim();
  const ids = lane.takeReady()?.map(({ record }) => record.id);
  t.same(ids, ["pay_7", "pay_6"], "a withdrawal waits for no others");
});
