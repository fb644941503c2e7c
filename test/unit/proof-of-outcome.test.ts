// Goal: an outcome is written only on proof: what others relayed, cancelled or used otherwise is told apart, and absence decides nothing.
import t from "tap";
import type { Hex } from "viem";
import type { RpcLog } from "../../server/core/abi.ts";
import type { RpcReceipt } from "../../server/infra/chain/contracts.ts";
import type { EngineContext } from "../../server/plugins/settlement/context.ts";
import { outcomeOf } from "../../server/plugins/settlement/waiters.ts";
import { explainUse, proveRefused } from "../../server/plugins/settlement/prove.ts";
import { proveByTransaction } from "../../server/plugins/settlement/receipt-logs.ts";
import { provenBy } from "../../server/plugins/settlement/tracker.ts";
import type { SettlementRecord } from "../../server/plugins/settlement/store.ts";
import {
  AUTHORIZATION_CANCELED,
  AUTHORIZATION_USED,
  TRANSFER,
} from "../../server/schemes/exact-eip3009/onchain.ts";
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
const used = log([AUTHORIZATION_USED, word(from), nonce]);
const canceled = log([AUTHORIZATION_CANCELED, word(from), nonce]);
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
  blockSeconds?: bigint;
  confirmations?: number;
  open?: SettlementRecord;
}
function contextOf(world: World): EngineContext {
  const parts = {
    network: { ...ARC, confirmations: world.confirmations ?? 1 },
    heads: { head: { number: 100n } },
    reads: {
      readAuthorizationStates: async (_rpc: unknown, refs: unknown[]) =>
        refs.map(() => ({ used: world.isUsed ?? false, blockNumber: 90n, timestampSeconds: 0n })),
      findAuthorizationUse: async () =>
        world.use && { event: world.use, txHash: HASH, blockNumber: 80n },
      readReceipt: async () => world.receipt ?? null,
      readBlockTimestamp: async () => world.blockSeconds ?? 2_000n,
    },
    transactions: { isOurTransaction: async () => world.isOurs ?? false },
    settlements: { findOpenRecord: async () => world.open },
  };
  return parts as unknown as EngineContext;
}
const paid = receiptOf([used, moved(value)]);
const ours = recordOf(AUTHORIZATION, { kind: "spend", agent_id: "agt_1" });
const USED = "invalid_exact_evm_nonce_already_used";

t.test("an authorization that is used: by whom?", async (t) => {
  const explain = (record: SettlementRecord, world: World) =>
    explainUse(contextOf(world), record, 90n);
  t.match(await explain(recordOf(), { use: "used", receipt: paid, isOurs: true }), {
    ...KEY,
    status: "settled",
    hash: HASH,
    block: "80",
    byOther: false,
  });
  t.match(await explain(recordOf(), { use: "used", receipt: paid }), {
    status: "settled",
    byOther: true,
  });
  t.match(
    await explain(recordOf(), { use: "used", receipt: paid, blockSeconds: 999n }),
    { status: "failed", reason: USED },
    "used before it was presented here: a replay",
  );
  t.match(
    await explain(recordOf(), { use: "used", receipt: paid, blockSeconds: 1_000n }),
    { status: "settled" },
    "block times are whole seconds: within the same one it is no replay",
  );
  t.match(
    await explain(ours, { use: "used", receipt: paid, blockSeconds: 1n }),
    { status: "settled" },
    "our own agent's payment is no replay",
  );
  t.match(await explain(recordOf(), { use: "used", receipt: receiptOf([used, moved(1n)]) }), {
    status: "failed",
    reason: USED,
    message: /another authorization/,
  });
  t.match(await explain(ours, { use: "canceled" }), {
    status: "failed",
    reason: "authorization_canceled",
  });
  t.match(await explain(recordOf(), { use: "canceled" }), { status: "failed", reason: USED });
});

t.test("absence decides nothing about our own payments", async (t) => {
  t.equal(await explainUse(contextOf({}), ours, 90n), undefined, "no event found yet");
  t.equal(await explainUse(contextOf({ use: "used" }), ours, 90n), undefined, "no receipt yet");
  t.equal(
    await explainUse(contextOf({ use: "used", receipt: receiptOf([]) }), ours, 90n),
    undefined,
    "a receipt without our event",
  );
});

t.test("a refused simulation", async (t) => {
  const prove = async (record: SettlementRecord, text: string | undefined, world: World = {}) =>
    (await proveRefused(contextOf(world), [{ record, text }]))[0]?.proof;
  const seller = recordOf(AUTHORIZATION, { kind: "x402", agent_id: "agt_1" });
  t.match(await prove(recordOf(), "ERC20: transfer amount exceeds balance"), {
    outcome: { ...KEY, status: "failed", reason: "invalid_exact_evm_insufficient_balance" },
  });
  t.match(await prove(recordOf(), undefined), {
    outcome: { reason: "invalid_exact_evm_transaction_failed" },
  });
  t.match(await prove(ours, "Pausable: paused"), { outcome: { status: "failed" } });
  t.same(
    await prove(seller, "ERC20: transfer amount exceeds balance"),
    { retryAfterMs: 2_000 },
    "what a seller holds may still be used",
  );
  const asked = recordOf(AUTHORIZATION, { cancel_signature: Buffer.alloc(65) });
  t.same(await prove(asked, "FiatTokenV2: invalid signature"), { retryAfterMs: 2_000 });
  for (const text of ["authorization is used or canceled", "authorization is expired"])
    t.same(await prove(recordOf(), text), { retryAfterMs: 500 }, `${text}: the state decides`);
  t.match(
    await prove(recordOf(), "anything", { isUsed: true, use: "used", receipt: paid }),
    { outcome: { status: "settled" } },
    "used at a final block, whatever the simulation said",
  );
  t.same(
    await prove(ours, "anything", { isUsed: true }),
    { retryAfterMs: 2_000 },
    "used, and not found yet",
  );
});

t.test("a transaction a stranger names", async (t) => {
  const prove = (world: World) => proveByTransaction(contextOf(world), "pay_1", HASH);
  const open = recordOf();
  t.match((await prove({ open, receipt: paid })).outcome, {
    status: "settled",
    block: "80",
    byOther: true,
  });
  t.equal((await prove({ open })).outcome, undefined, "not in the chain");
  t.equal((await prove({ receipt: paid })).outcome, undefined, "not open any more");
  t.equal((await prove({ open, receipt: receiptOf([used]) })).outcome, undefined);
  t.equal(
    (await prove({ open, receipt: paid, confirmations: 3 })).outcome,
    undefined,
    "a receipt alone proves nothing where blocks are final later",
  );
});

t.test("what one receipt proves of a whole batch", async (t) => {
  const item = { ...KEY, action: "transfer" as const, to, value };
  const other = { ...item, nonce: `0x${"d5".repeat(32)}` };
  const tx = { nonce: 1n, to: asset, calldata: "0x" as const, gasLimit: 1n, attempts: [] };
  t.same(provenBy(paid, { ...tx, items: [item, other] }), [
    { ...KEY, status: "settled", hash: HASH, block: "80" },
  ]);
  t.match(provenBy(receiptOf([canceled]), { ...tx, items: [item] }), [
    { status: "failed", reason: "authorization_canceled" },
  ]);
  t.same(
    provenBy({ ...paid, logs: [] }, { ...tx, items: [item] }),
    [],
    "a successful transaction without our event proves nothing",
  );
  t.same(provenBy(receiptOf([used, moved(1n)]), { ...tx, items: [item] }), []);
});

t.test("a row's outcome", async (t) => {
  const row = {
    id: "pay_1",
    status: "queued" as const,
    txHash: null,
    blockNumber: null,
    settledAt: null,
    byOther: false,
    errorReason: null,
    errorMessage: null,
  };
  t.same(outcomeOf(row), { status: "pending", id: "pay_1" });
  t.match(outcomeOf({ ...row, status: "submitted", txHash: HASH }), {
    status: "pending",
    txHash: HASH,
  });
  t.match(
    outcomeOf({ ...row, status: "settled", txHash: HASH, settledAt: new Date(5), blockNumber: 8n }),
    { status: "settled", txHash: HASH, blockNumber: 8n },
  );
  t.match(outcomeOf({ ...row, status: "settled" }), { status: "pending" }, "without its proof");
  t.same(outcomeOf({ ...row, status: "expired", errorReason: "late" }), {
    status: "expired",
    id: "pay_1",
    reason: "late",
    message: "late",
  });
});
