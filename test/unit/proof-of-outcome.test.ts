// Goal: an outcome is recorded only with proof: relays by others, cancellations and other uses are distinguished, and absence decides nothing.
import t from "tap";
import { decodeFunctionData, encodeFunctionResult, multicall3Abi, type Hex } from "viem";
import { ChainUnreachable } from "../../server/infra/chain/errors.ts";
import { TIMINGS } from "../../server/core/timings.ts";
import type { RpcLog } from "../../server/core/abi.ts";
import type { RpcReceipt } from "../../server/infra/chain/contracts.ts";
import type { EngineContext } from "../../server/plugins/settlement/context.ts";
import { notOnChain, type LedgerRow } from "../../server/plugins/reconciliation/compare.ts";
import { repair, Timeouts } from "../../server/plugins/reconciliation/repair.ts";
import { outcomeOf } from "../../server/plugins/settlement/waiters.ts";
import { explainUse, proveRefused, Refusals } from "../../server/plugins/settlement/prove.ts";
import { proveByTransaction, provenBy } from "../../server/plugins/settlement/receipts.ts";
import type { SettlementRecord } from "../../server/plugins/settlement/types.ts";
import {
  AUTHORIZATION_CANCELED,
  AUTHORIZATION_USED,
  TRANSFER,
} from "../../server/schemes/exact-eip3009/onchain.ts";
import { storedAs } from "./chain-answers.ts";
import { ARC, AUTHORIZATION, recordOf } from "./payment-samples.ts";

const HASH: Hex = `0x${"fe".repeat(32)}`;
const word = (address: string): Hex => `0x${address.slice(2).padStart(64, "0")}`;
const { from, to, asset, nonce, value } = AUTHORIZATION;
const KEY = { from, asset, nonce };
const log = (topics: Hex[], data: Hex = "0x"): RpcLog => ({
  address: asset,
  topics,
  data,
  transactionHash: HASH,
  blockNumber: "0x50",
  blockHash: "0x01",
});
const named = nonce as Hex;
const used = log([AUTHORIZATION_USED, word(from), named]);
const canceled = log([AUTHORIZATION_CANCELED, word(from), named]);
const moved = (amount: bigint): RpcLog =>
  log([TRANSFER, word(from), word(to)], `0x${amount.toString(16).padStart(64, "0")}`);
const receiptOf = (logs: RpcLog[]): RpcReceipt => ({
  transactionHash: HASH,
  blockNumber: "0x50",
  blockHash: "0x01",
  status: "0x1",
  gasUsed: "0x1",
  logs,
});

interface World {
  isUsed?: boolean;
  use?: "used" | "canceled";
  receipt?: RpcReceipt;
  isOurs?: boolean;
  /** Hashes of our own transactions that carried it. */
  attempts?: Hex[];
  /** At the head when it was accepted; undefined where the node has pruned that state. */
  wasUsed?: boolean;
  head?: bigint;
  confirmations?: number;
  open?: SettlementRecord;
}

/** What the chain of this world answers. */
function answerOf(world: World, method: string, params: unknown[]): unknown {
  if (method === "eth_getLogs") return world.use ? [{ transactionHash: HASH }] : [];
  if (method === "eth_getTransactionReceipt") return world.receipt ?? null;
  if (method === "eth_getBlockByNumber")
    return { hash: params[0] === "0x50" ? "0x01" : "0x03", timestamp: "0x0" };
  const [{ data }, block] = params as [{ data: Hex }, string];
  const state = BigInt(block) === 50n ? world.wasUsed : (world.isUsed ?? false);
  if (state === undefined) throw new ChainUnreachable("missing trie node");
  const { args } = decodeFunctionData({ abi: multicall3Abi, data });
  return encodeFunctionResult({
    abi: multicall3Abi,
    functionName: "aggregate3",
    result: (args[0] as unknown[]).map(() => ({
      success: true,
      returnData: `0x${String(Number(state)).padStart(64, "0")}` as const,
    })),
  });
}

/** What the database of this world returns. */
function rowsFor(world: World, query: string | { text: string }): unknown[] {
  const text = typeof query === "string" ? query : query.text;
  if (text.includes("settlement_transactions"))
    return (world.attempts ?? []).map((hash) => ({ hash }));
  if (text.includes("relayer_attempts")) return world.isOurs ? [{}] : [];
  if (text.includes("FROM settlements") && world.open) return [storedAs(world.open)];
  return [];
}

function contextOf(world: World): EngineContext {
  const parts = {
    network: { ...ARC, confirmations: world.confirmations ?? 1 },
    heads: {
      head: { number: world.head ?? 100n, hash: "0x02", timestampSeconds: 0n, seenAtMs: Infinity },
    },
    rpc: {
      endpoints: 1,
      call: async (method: string, params: unknown[]) => answerOf(world, method, params),
    },
    pool: { query: async (query: string | { text: string }) => ({ rows: rowsFor(world, query) }) },
    search: { spanBlocks: 2_000n, spansPerRound: 25 },
    timings: TIMINGS,
  };
  return parts as unknown as EngineContext;
}
const paid = receiptOf([used, moved(value)]);
const agentPayment = recordOf(AUTHORIZATION, { kind: "spend", agentId: "agt_1" });
const USED = "invalid_exact_evm_nonce_already_used";

const explain = (record: SettlementRecord, world: World) => explainUse(contextOf(world), record);

t.test("who used an authorization that is used", async (t) => {
  t.match(await explain(recordOf(), { use: "used", receipt: paid, isOurs: true }), {
    ...KEY,
    status: "settled",
    proof: { kind: "receipt", tx: HASH, block: "80", blockHash: "0x01" },
    isFinal: true,
    byOther: false,
  });
  t.match(await explain(recordOf(), { use: "used", receipt: paid }), {
    status: "settled",
    byOther: true,
  });
  const late = recordOf(AUTHORIZATION, { acceptedBlock: 80n });
  t.match(
    await explain(late, { use: "used", receipt: paid }),
    { status: "failed", reason: USED, proof: { kind: "receipt" } },
    "in the block at which it was accepted: used before it was presented here, a replay",
  );
  t.match(
    await explain(recordOf(), { wasUsed: true }),
    { status: "failed", reason: USED, proof: { kind: "state", block: "50" } },
    "the state of that block agrees",
  );
  const ourLate = recordOf(AUTHORIZATION, { kind: "spend", agentId: "a", acceptedBlock: 80n });
  t.match(
    await explain(ourLate, { use: "used", receipt: paid }),
    { status: "settled" },
    "an agent's own payment is no replay",
  );
  t.match(await explain(recordOf(), { use: "used", receipt: receiptOf([used, moved(1n)]) }), {
    status: "failed",
    reason: USED,
    message: /another authorization/,
  });
  t.match(await explain(agentPayment, { use: "canceled", receipt: receiptOf([canceled]) }), {
    status: "failed",
    reason: "authorization_canceled",
  });
  t.match(await explain(recordOf(), { use: "canceled", receipt: receiptOf([canceled]) }), {
    status: "failed",
    reason: USED,
  });
});

t.test("our own transactions are checked first", async (t) => {
  t.match(
    await explain(recordOf(), { attempts: [HASH], receipt: paid, wasUsed: true }),
    { status: "settled", byOther: false, proof: { tx: HASH } },
    "whatever the logs and states of a lagging node contain",
  );
  t.equal(
    await explain(recordOf(), { attempts: [HASH] }),
    undefined,
    "a missing receipt decides nothing",
  );
});

t.test("absence decides nothing", async (t) => {
  for (const record of [agentPayment, recordOf()]) {
    t.equal(await explain(record, {}), undefined, "no event found yet");
    t.equal(await explain(record, { use: "used" }), undefined, "no receipt yet");
    t.equal(
      await explain(record, { use: "used", receipt: receiptOf([]) }),
      undefined,
      "a receipt without its event",
    );
  }
});

t.test("an outcome that releases money waits for finality, a payment does not", async (t) => {
  const shallow = { head: 81n, confirmations: 3, use: "used" as const };
  t.match(await explain(agentPayment, { ...shallow, receipt: paid }), {
    status: "settled",
    isFinal: false,
  });
  for (const logs of [[canceled], [used, moved(1n)]])
    t.equal(await explain(agentPayment, { ...shallow, receipt: receiptOf(logs) }), undefined);
  t.equal(
    await explain(recordOf(AUTHORIZATION, { acceptedBlock: 80n }), {
      ...shallow,
      receipt: paid,
    }),
    undefined,
    "a replay",
  );
});

t.test("a refused simulation", async (t) => {
  const prove = async (record: SettlementRecord, text: string | undefined, world: World = {}) => {
    const ctx = contextOf(world);
    const refused = [{ record, text }];
    const before = new Refusals();
    const [first] = await proveRefused(ctx, refused, before, async () => [true]);
    // One endpoint refused once: it may lag. A refusal at a newer block counts.
    (ctx.heads.head as { number: bigint }).number += 1n;
    const [second] = await proveRefused(ctx, refused, before, async () => [true]);
    if (second && "outcome" in second.proof && second.proof.outcome.proof?.kind === "refusal")
      t.ok(first && "retryAfterMs" in first.proof, "not after one refusal");
    return second?.proof;
  };
  const seller = recordOf(AUTHORIZATION, { kind: "x402", agentId: "agt_1" });
  t.match(await prove(recordOf(), "ERC20: transfer amount exceeds balance"), {
    outcome: { ...KEY, status: "failed", reason: "invalid_exact_evm_insufficient_balance" },
  });
  t.match(await prove(recordOf(), undefined), {
    outcome: { reason: "invalid_exact_evm_transaction_failed" },
  });
  t.match(await prove(agentPayment, "Pausable: paused"), { outcome: { status: "failed" } });
  const sent = (kind: "spend" | "withdrawal") =>
    recordOf(AUTHORIZATION, { kind, agentId: "agt_1", attempts: 1, createdAt: new Date() });
  for (const kind of ["spend", "withdrawal"] as const)
    t.same(
      await prove(sent(kind), "Pausable: paused"),
      { retryAfterMs: 2_000 },
      `a ${kind} whose signature may be in public calldata`,
    );
  t.match(
    await prove(recordOf(AUTHORIZATION, { attempts: 1 }), "Pausable: paused"),
    { outcome: { status: "failed" } },
    "a third party's payment may fail: no agent's budget depends on it",
  );
  t.match(
    await prove(seller, "ERC20: transfer amount exceeds balance"),
    { retryAfterMs: 15_000 },
    "the seller holds the signature and may still use it",
  );
  const canceling = recordOf(AUTHORIZATION, { cancelSignature: `0x${"00".repeat(65)}` });
  t.match(await prove(canceling, "FiatTokenV2: invalid signature"), { retryAfterMs: 15_000 });
  for (const text of [
    "authorization is used or canceled",
    "authorization is expired",
    "authorization is not yet valid",
  ])
    t.same(await prove(recordOf(), text), { retryAfterMs: 500 }, `${text}: the state decides`);
  t.match(
    await prove(recordOf(), "anything", { isUsed: true, use: "used", receipt: paid }),
    { outcome: { status: "settled" } },
    "used, whatever the simulation returned",
  );
  t.same(
    await prove(agentPayment, "anything", { isUsed: true }),
    { retryAfterMs: 2_000 },
    "used, and not found yet",
  );
});

t.test("a transaction named by a third party", async (t) => {
  const prove = (world: World) => proveByTransaction(contextOf(world), "pay_1", HASH);
  const open = recordOf();
  t.match((await prove({ open, receipt: paid })).outcome, {
    status: "settled",
    proof: { block: "80" },
    isFinal: true,
    byOther: true,
  });
  t.equal((await prove({ open })).outcome, undefined, "not in the chain");
  t.equal((await prove({ receipt: paid })).outcome, undefined, "not open any more");
  t.equal((await prove({ open, receipt: receiptOf([used]) })).outcome, undefined);
  t.match(
    (await prove({ open, receipt: paid, confirmations: 3, head: 81n })).outcome,
    { status: "settled", isFinal: false },
    "in a block that may be reorganised: reported, and followed until it is final",
  );
});

t.test("what one receipt proves about a whole batch", async (t) => {
  const item = { ...KEY, action: "transfer" as const, to, value };
  const other = { ...item, nonce: `0x${"d5".repeat(32)}` };
  const batch = { to: asset, calldata: "0x" as const };
  t.match(provenBy(paid, { ...batch, items: [item, other] }, true), [
    { ...KEY, status: "settled", proof: { tx: HASH, block: "80" }, isFinal: true },
  ]);
  t.match(provenBy(receiptOf([canceled]), { ...batch, items: [item] }, true), [
    { status: "failed", reason: "authorization_canceled" },
  ]);
  t.match(
    provenBy(receiptOf([canceled]), { ...batch, items: [item] }, false),
    [{ status: "held" }],
    "a cancellation releases money: not before it is final",
  );
  t.same(
    provenBy({ ...paid, logs: [] }, { ...batch, items: [item] }, true),
    [],
    "a successful transaction without its event proves nothing",
  );
  t.same(provenBy(receiptOf([used, moved(1n)]), { ...batch, items: [item] }, true), []);
});

t.test("the outcome of a row", async (t) => {
  const row = {
    id: "pay_1",
    status: "queued" as const,
    txHash: null,
    blockNumber: null,
    settledAt: null,
    byOther: false,
    errorReason: null,
    errorMessage: null,
    authorization: { value: 7n },
  };
  t.same(outcomeOf(row), { status: "pending", id: "pay_1" });
  t.match(outcomeOf({ ...row, status: "submitted", txHash: HASH }), {
    status: "pending",
    txHash: HASH,
  });
  t.match(
    outcomeOf({ ...row, status: "settled", txHash: HASH, settledAt: new Date(5), blockNumber: 8n }),
    { status: "settled", txHash: HASH, blockNumber: 8n, amountAtomic: 7n },
  );
  t.match(outcomeOf({ ...row, status: "settled" }), { status: "pending" }, "without its proof");
  t.same(outcomeOf({ ...row, status: "expired", errorReason: "late" }), {
    status: "expired",
    id: "pay_1",
    reason: "late",
    message: "late",
  });
});

t.test("a settled payment that the logs lack is opened when every endpoint lacks it", async (t) => {
  const { authorization, ...record } = recordOf(AUTHORIZATION, {
    txHash: HASH,
    blockNumber: 0x50n,
  });
  const row = { ...record, ...authorization, status: "settled", blockHash: "0x01" } as LedgerRow;
  const repaired = async (answers: (RpcReceipt | null)[]) => {
    const finalized: string[] = [];
    const result = await repair(
      {
        chainId: ARC.chainId,
        timeouts: new Timeouts({ ...TIMINGS, reconcileAbsentMs: 0 }),
        receiptsFor: async () => ({ answers, needed: 2 }),
        row: async () => row,
        note: async () => true,
        repaired: async () => undefined,
        finalize: async (outcomes: { status: string }[]) =>
          void finalized.push(...outcomes.map(({ status }) => status)),
        log: { warn: () => undefined, error: () => undefined },
      } as unknown as Parameters<typeof repair>[0],
      notOnChain(row),
    );
    return { result, finalized };
  };
  const shown = receiptOf([used, moved(value)]);
  t.same(await repaired([shown, null]), { result: "wait", finalized: [] }, "one shows it");
  t.same(await repaired([null]), { result: "wait", finalized: [] }, "too few answer");
  t.same(await repaired([null, null]), { result: "done", finalized: ["open"] });
});
