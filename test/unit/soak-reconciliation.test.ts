// Goal: the soak test's reconciliation finds money moved twice or not at all, a false response, an exceeded limit, and a row that contradicts the chain.
import t from "tap";
import type { Address, Hex } from "viem";
import {
  checkLedgers,
  checkOnce,
  checkRows,
  checkOutcomes,
  type ChainLog,
  type Move,
  type PaymentRow,
  type Rows,
} from "../soak/reconciliation.ts";
import type { RuleInForce, SoakAgent, ReportedOutcome } from "../soak/clients.ts";
import { checkLimits } from "../soak/limits.ts";

const WALLET: Address = `0x${"a1".repeat(20)}`;
const PAYEE: Address = `0x${"b2".repeat(20)}`;
const NONCE: Hex = `0x${"01".repeat(32)}`;
const HASH: Hex = `0x${"02".repeat(32)}`;
const move: Move = {
  from: WALLET,
  to: PAYEE,
  amountAtomic: 5n,
  nonce: NONCE,
  txHash: HASH,
  block: 1n,
};

function chainLog(...moves: Move[]): ChainLog {
  const byKey = new Map<string, Move[]>();
  for (const one of moves) {
    const key = `${one.from}:${one.nonce}`;
    byKey.set(key, [...(byKey.get(key) ?? []), one]);
  }
  const byAmount = new Map([[`${WALLET}>${PAYEE}=5`, moves]]);
  return { moves, byKey, byAmount, cancelled: new Set(), allowed: new Set() };
}

const payment = (over: Partial<PaymentRow> = {}): PaymentRow => ({
  id: "pay_1",
  agent_id: "agt_1",
  kind: "spend",
  status: "settled",
  amount: "5",
  nonce: NONCE,
  tx_hash: HASH,
  created_at: new Date(1_000),
  updated_at: new Date(2_000),
  weighed: [{ counted: true, atMs: over.created_at?.getTime() ?? 1_000 }],
  corrections: [],
  ...over,
});
const settlement = (status: string, tx_hash: Hex | null = HASH): Rows["settlements"][number] => ({
  id: "pay_1",
  kind: "spend",
  from_address: WALLET,
  nonce: NONCE,
  status,
  tx_hash,
  error_reason: null,
});
const told = (outcome: ReportedOutcome["outcome"]): ReportedOutcome => ({
  kind: "spend",
  outcome,
  from: WALLET,
  to: PAYEE,
  amountAtomic: 5n,
  isClear: true,
  tookMs: 1,
});
const agent = (rules: RuleInForce[]): SoakAgent[] => [
  { id: "agt_1", wallet: WALLET, rules } as unknown as SoakAgent,
];
const rule = (over: Partial<RuleInForce>): RuleInForce => ({
  requestedMs: 0,
  certainMs: 0,
  ...over,
});
const wrongs = (checks: { wrong: string[] }[]): number[] => checks.map(({ wrong }) => wrong.length);

t.test("a payment moved twice", async (t) => {
  t.same(wrongs([checkOnce(chainLog(move)), checkOnce(chainLog(move, move))]), [0, 1]);
});

t.test("responses that callers received", async (t) => {
  const rows: Rows = { settlements: [], payments: [payment()] };
  const check = (outcomes: ReportedOutcome["outcome"][], ...moves: Move[]) =>
    wrongs(checkOutcomes(chainLog(...moves), rows, outcomes.map(told))).filter((_, at) => at !== 1);
  t.same(check(["paid"], move), [0, 0, 0]);
  t.same(check(["paid"]), [1, 0, 0], "lost");
  t.same(check(["paid"], move, move), [1, 0, 0], "doubled");
  t.same(check(["paid", "paid"], move), [0, 1, 0], "success returned twice");
  for (const outcome of ["denied", "failed", "free"] as const) {
    t.same(check([outcome]), [0, 0, 0]);
    t.same(check([outcome], move), [0, 0, 1], `reported ${outcome}, but paid`);
  }
  t.same(check(["unknown"], move), [0, 0, 0], "both outcomes are consistent with an unknown one");
  const afterReorg = (row: Rows["settlements"][number]) =>
    checkOutcomes(chainLog(), { ...rows, settlements: [row] }, [{ ...told("paid"), nonce: NONCE }]);
  const takenBack = { ...settlement("expired"), taken_back: true };
  t.same(wrongs(afterReorg(takenBack)), [0, 0, 0, 0]);
  t.equal(afterReorg(takenBack)[1]?.looked, 1, "counted");
  t.same(
    wrongs(afterReorg({ ...takenBack, taken_back: false })),
    [1, 0, 0, 0],
    "no reorganisation",
  );
  t.same(
    wrongs(afterReorg({ ...takenBack, status: "settled" })),
    [1, 0, 0, 0],
    "still reported as paid",
  );
});

t.test("rows against the chain", async (t) => {
  const check = (row: Rows["settlements"][number], ...moves: Move[]) =>
    wrongs(checkRows(chainLog(...moves), { settlements: [row], payments: [] }));
  t.same(check(settlement("settled"), move), [0, 0]);
  t.same(check(settlement("settled")), [1, 0]);
  t.same(check(settlement("settled", NONCE), move), [1, 0], "by another transaction");
  t.same(check(settlement("failed"), move), [1, 0]);
  t.same(check(settlement("submitted"), move), [0, 1]);
  t.same(wrongs(checkRows(chainLog(move), { settlements: [], payments: [] })), [1, 0], "no row");
});

t.test("ledgers against the chain", async (t) => {
  const rows: Rows = { settlements: [], payments: [payment()] };
  t.same(checkLedgers(chainLog(move), rows, agent([])).wrong, []);
  t.equal(checkLedgers(chainLog(), rows, agent([])).wrong.length, 1);
  const received = { ...move, from: PAYEE, to: WALLET };
  t.equal(
    checkLedgers(chainLog(move, received), rows, agent([])).wrong.length,
    1,
    "an unexpected transfer",
  );
});

t.test("limits", async (t) => {
  const check = (payments: PaymentRow[], rules: RuleInForce[]) =>
    wrongs(checkLimits({ settlements: [], payments }, agent(rules)));
  const open = rule({ paused: false });
  const second = payment({ id: "pay_2", created_at: new Date(1_500) });
  t.same(check([payment(), second], [open, rule({ limitAtomic: 10n })]), [0, 0, 0]);
  t.same(check([payment(), second], [open, rule({ limitAtomic: 9n })]), [1, 0, 0]);
  const given = (...turns: [counted: boolean, atMs: number][]) =>
    payment({ weighed: turns.map(([counted, atMs]) => ({ counted, atMs })) });
  const low = [open, rule({ limitAtomic: 5n })];
  const before = given([true, 1_000], [false, 1_400]);
  t.same(check([before, second], low), [0, 0, 0], "released before, and written again later");
  t.same(check([given([true, 1_000], [false, 1_600]), second], low), [1, 0, 0], "after");
  const again = given([true, 1_000], [false, 1_400], [true, 1_600]);
  t.same(check([again, second], low), [0, 1, 0], "released, and paid after all");
  const lowered = (certainMs: number, ghostUntilMs?: number) => [
    open,
    rule({ limitAtomic: 10n, ...(ghostUntilMs !== undefined && { ghostUntilMs }) }),
    rule({ limitAtomic: 5n, requestedMs: 1_100, certainMs }),
  ];
  t.same(check([payment(), second], lowered(1_200)), [1, 0, 0], "lowered with certainty");
  t.same(check([payment(), second], lowered(1_600)), [0, 0, 0], "lowered at about that time");
  t.same(check([payment(), second], lowered(1_200, 9_000)), [0, 0, 0], "perhaps raised again");
  const pausedThen = [
    open,
    rule({ limitAtomic: 10n }),
    rule({ paused: true, requestedMs: 1_100, certainMs: 1_200 }),
  ];
  t.same(check([payment(), second], pausedThen), [0, 0, 1]);
});
