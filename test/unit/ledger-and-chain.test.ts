// Goal: reconciliation finds no difference where ledger and chain agree, and one false fact yields exactly that one difference.
import * as fc from "fast-check";
import t from "tap";
import type { Address, Hex } from "viem";
import type { Nonce } from "../../server/core/authorization.ts";
import type { WalletLog } from "../../server/infra/chain/wallet-logs.ts";
import {
  compareSpan,
  keyOf,
  type LedgerRow,
  type DifferenceKind,
} from "../../server/plugins/reconciliation/compare.ts";

const USDC: Address = `0x${"36".repeat(20)}`;
const WALLETS: readonly Address[] = [`0x${"a1".repeat(20)}`, `0x${"a2".repeat(20)}`];
const PAYEES: readonly Address[] = [`0x${"b1".repeat(20)}`, `0x${"b2".repeat(20)}`];
const agents = new Map(WALLETS.map((wallet, index) => [wallet, `agt_${index}`]));

/** The outcome of one payment made by an agent's wallet. */
interface Fact {
  end: "used" | "canceled" | "nothing";
  wallet: number;
  payee: number;
  value: number;
  /** In the same transaction as the one before, as in a batch. */
  isTogether: boolean;
  /** The status of the row when nothing happened on chain. */
  open: "queued" | "submitted" | "failed" | "expired";
  /** A third party pays the wallet in between. */
  income: boolean;
}
const fact: fc.Arbitrary<Fact> = fc.record({
  end: fc.constantFrom("used", "used", "used", "canceled", "nothing"),
  wallet: fc.nat({ max: 1 }),
  payee: fc.nat({ max: 1 }),
  value: fc.integer({ min: 1, max: 3 }),
  isTogether: fc.boolean(),
  open: fc.constantFrom("queued", "submitted", "failed", "expired"),
  income: fc.boolean(),
});

const hashOf = (number: number): Hex => `0x${number.toString(16).padStart(64, "0")}`;

class World {
  logs: WalletLog[] = [];
  readonly rows = new Map<string, LedgerRow>();

  constructor(facts: readonly Fact[]) {
    let block = 100;
    for (const [index, one] of facts.entries()) {
      if (!one.isTogether) block += 1;
      const [from, to] = [WALLETS[one.wallet] as Address, PAYEES[one.payee] as Address];
      const nonce: Nonce = hashOf(1_000 + index);
      const place = () => this.#place(block);
      if (one.income)
        this.logs.push({ ...place(), event: "transfer", from: to, to: from, amountAtomic: 9n });
      if (one.end !== "nothing") this.logs.push({ ...place(), event: one.end, from, nonce });
      if (one.end === "used")
        this.logs.push({
          ...place(),
          event: "transfer",
          from,
          to,
          amountAtomic: BigInt(one.value),
        });
      const isSettled = one.end === "used";
      const row: LedgerRow = {
        id: `pay_${index}`,
        kind: "spend",
        agentId: agents.get(from) ?? null,
        from,
        to,
        asset: USDC,
        value: BigInt(one.value),
        nonce,
        terms: null,
        status: isSettled ? "settled" : one.end === "canceled" ? "failed" : one.open,
        txHash: isSettled ? hashOf(block) : null,
        blockNumber: isSettled ? BigInt(block) : null,
        blockHash: isSettled ? hashOf(block + 5_000) : null,
      };
      this.rows.set(keyOf(row), row);
    }
  }

  #place(block: number) {
    return {
      txHash: hashOf(block),
      logIndex: this.logs.length,
      blockNumber: BigInt(block),
      blockHash: hashOf(block + 5_000),
    };
  }

  /** A transfer without a signature of the wallet. */
  steal(block: number): string {
    const log = {
      ...this.#place(block),
      event: "transfer" as const,
      from: WALLETS[0] as Address,
      to: PAYEES[0] as Address,
      amountAtomic: 2n,
    };
    this.logs.push(log);
    return `${log.txHash}:${log.logIndex}`;
  }

  differences(): string[] {
    const claims = [...this.rows.values()].filter(({ status }) => status === "settled");
    const args = { logs: this.logs, wallets: agents, rows: this.rows, claims };
    return compareSpan(args).map(({ kind, key }) => `${kind} ${key}`);
  }
}

/** Makes one fact false. Returns the expected difference, or undefined where the payment has no such fact. */
type Falsify = (world: World, row: LedgerRow, isUsed: boolean) => DifferenceKind | undefined;

const FALSIFICATIONS: readonly Falsify[] = [
  (world, row, isUsed) => {
    const isCanceled = world.logs.some(
      (log) => log.event === "canceled" && log.nonce === row.nonce,
    );
    if (!isUsed && !isCanceled) return undefined;
    world.rows.delete(keyOf(row));
    return isUsed ? "payment_unknown" : "cancel_unknown";
  },
  (world, row, isUsed) => {
    const isCanceled = world.logs.some(
      (log) => log.event === "canceled" && log.nonce === row.nonce,
    );
    if (!isUsed && !isCanceled) return undefined;
    world.rows.set(keyOf(row), { ...row, status: "submitted" });
    return isUsed ? "payment_open" : "cancel_open";
  },
  (world, row, isUsed) => {
    if (!isUsed) return undefined;
    world.rows.set(keyOf(row), { ...row, status: "expired" });
    return "payment_not_settled";
  },
  (world, row, isUsed) => {
    if (!isUsed) return undefined;
    world.rows.set(keyOf(row), { ...row, txHash: hashOf(7) });
    return "payment_elsewhere";
  },
  (world, row, isUsed) => {
    if (!isUsed) return undefined;
    world.rows.set(keyOf(row), { ...row, value: row.value + 1n });
    return "payment_other";
  },
  (world, row, isUsed) => {
    if (!isUsed) return undefined;
    world.rows.set(keyOf(row), { ...row, to: USDC });
    return "payment_other";
  },
  (world, row, isUsed) => {
    const isEnded = world.logs.some((log) => log.event !== "transfer" && log.nonce === row.nonce);
    if (isUsed || isEnded) return undefined;
    world.rows.set(keyOf(row), { ...row, status: "settled", txHash: hashOf(7), blockNumber: 7n });
    return "payment_not_on_chain";
  },
];

const facts = fc.array(fact, { minLength: 1, maxLength: 8 });

t.test("a ledger that agrees with the chain has no difference", async () => {
  fc.assert(
    fc.property(facts, (facts) => new World(facts).differences().length === 0),
    { numRuns: 300 },
  );
});

t.test("one false fact is the only difference, and has the right kind", async (t) => {
  const seen = new Set<DifferenceKind>();
  fc.assert(
    fc.property(facts, fc.nat(), fc.constantFrom(...FALSIFICATIONS), (facts, place, falsify) => {
      const world = new World(facts);
      const index = place % facts.length;
      const row = [...world.rows.values()][index];
      if (!row) return false;
      const kind = falsify(world, row, facts[index]?.end === "used");
      const expected = kind === undefined ? [] : [`${kind} ${keyOf(row)}`];
      if (kind) seen.add(kind);
      return world.differences().join() === expected.join();
    }),
    { numRuns: 1_000 },
  );
  t.equal(seen.size, 8, [...seen].join(", "));
});

t.test("a transfer without a payment row is found in any block", async () => {
  fc.assert(
    fc.property(facts, fc.integer({ min: 101, max: 110 }), (facts, block) => {
      const world = new World(facts);
      const key = world.steal(block);
      return world.differences().join() === `transfer_unknown ${key}`;
    }),
    { numRuns: 300 },
  );
});
