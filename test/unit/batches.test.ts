// Goal: rows become the right calls with the right gas, share a batch only where none can harm another, and are given up in time.
import t from "tap";
import { decodeFunctionData, multicall3Abi } from "viem";
import { BATCHER_ADDRESS } from "../../server/core/batcher.ts";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import {
  gasLimitOf,
  hasTooManyFaults,
  pendingDebits,
  toBatchItem,
  transactionOf,
  type BatchItem,
} from "../../server/plugins/settlement/batch.ts";
import { cancelCalldata, transferCalldata } from "../../server/schemes/exact-eip3009/onchain.ts";
import { unpackTransfers } from "../helpers/batcher-calls.ts";
import { AUTHORIZATION, recordOf } from "./payment-samples.ts";

const CAP = 300_000n;
const itemOf = (...args: Parameters<typeof recordOf>): BatchItem =>
  toBatchItem(recordOf(...args), CAP);

t.test("one row is a direct call of the token, with gas under the operator's cap", async (t) => {
  const item = itemOf();
  t.match(item, { action: "transfer", solo: false, gas: 100_000n });
  t.equal(item.call.data, transferCalldata(AUTHORIZATION, AUTHORIZATION.signature));
  t.equal(toBatchItem(recordOf(), 50_000n).gas, 50_000n, "never above the operator's cap");
  t.same(transactionOf([item]), { to: AUTHORIZATION.asset, calldata: item.call.data });
  t.throws(() => transactionOf([]));
});

t.test("a row to be canceled becomes a cancelAuthorization call", async (t) => {
  const signature = `0x${"cd".repeat(64)}1c` as const;
  const item = itemOf(AUTHORIZATION, { cancelSignature: signature });
  t.match(item, { action: "cancel", gas: 100_000n, solo: false });
  t.equal(item.call.data, cancelCalldata(AUTHORIZATION.from, AUTHORIZATION.nonce, signature));
});

t.test("which rows go alone", async (t) => {
  t.equal(
    itemOf(AUTHORIZATION, { attempts: 1 }).solo,
    false,
    "one attempt without an outcome is not a fault",
  );
  t.match(
    itemOf(AUTHORIZATION, { solo: true }),
    { solo: true, gas: CAP },
    "as the queue marked it",
  );
  const wallet = itemOf({ ...AUTHORIZATION, signature: `0x${"ab".repeat(100)}` });
  t.match(wallet, { solo: true, gas: CAP }, "a smart wallet, with the whole gas cap");
});

t.test("several rows become one aggregate in which each may fail alone", async (t) => {
  const items = [itemOf(), itemOf({ ...AUTHORIZATION, value: 7n })];
  const { to, calldata } = transactionOf(items);
  t.equal(to, MULTICALL3_ADDRESS);
  const { args } = decodeFunctionData({ abi: multicall3Abi, data: calldata });
  t.same(
    (args[0] as readonly { callData: string; allowFailure: boolean }[]).map((call) => [
      call.callData,
      call.allowFailure,
    ]),
    items.map((item) => [item.call.data, true]),
  );
});

t.test("where our batcher is deployed, transfers signed by plain keys go through it", async (t) => {
  const lowS = { ...AUTHORIZATION, signature: `0x${"1b".repeat(64)}1c` as const };
  const cents = itemOf({ ...lowS, value: 7n });
  const items = [itemOf(lowS), cents];
  const { to, calldata } = transactionOf(items, BATCHER_ADDRESS);
  t.equal(to, BATCHER_ADDRESS);
  t.same(
    unpackTransfers(calldata),
    items.map(({ call }) => ({ ...call, target: AUTHORIZATION.asset.toLowerCase() })),
  );
  // The token's address comes first, then the gas limit of each call: the largest of the batch.
  const gasIn = (data: string): number =>
    Number.parseInt(data.slice(10 + 128 + 40, 10 + 128 + 48), 16);
  t.equal(gasIn(calldata), 100_000);
  t.equal(transactionOf([cents], BATCHER_ADDRESS).to, AUTHORIZATION.asset, "alone: no batch");
  const canceled = itemOf(AUTHORIZATION, { cancelSignature: `0x${"1b".repeat(65)}` });
  const highS = itemOf();
  const bytes = itemOf({ ...AUTHORIZATION, signature: `0x${"ab".repeat(100)}` });
  const elsewhere = itemOf({ ...lowS, asset: AUTHORIZATION.to });
  const permit2 = itemOf({
    ...lowS,
    nonce: `permit2:0x${"12".repeat(32)}`,
    terms: { scheme: "exact-permit2" },
  });
  for (const [name, other] of Object.entries({ canceled, highS, bytes, elsewhere, permit2 }))
    t.equal(transactionOf([cents, other], BATCHER_ADDRESS).to, MULTICALL3_ADDRESS, name);
});

t.test("gas limit of a batch", async (t) => {
  const items = [itemOf(), itemOf()];
  const bytes = BigInt((items[0]?.call.data.length ?? 0) / 2);
  t.equal(gasLimitOf(items), 60_000n + 2n * (100_000n + bytes * 16n));
});

t.test("when a row is not tried again", async (t) => {
  const after = (faults: number, kind: "facilitated" | "spend") =>
    hasTooManyFaults(itemOf(AUTHORIZATION, { faults, kind }));
  t.same([after(1, "facilitated"), after(2, "facilitated")], [false, true]);
  t.same([after(4, "spend"), after(5, "spend")], [false, true]);
});

t.test("pending debits of the same payer are simulated first", async (t) => {
  const own = itemOf();
  const other = itemOf({ ...AUTHORIZATION, from: AUTHORIZATION.to });
  const canceled = itemOf(AUTHORIZATION, { cancelSignature: `0x${"1b".repeat(65)}` });
  t.same(pendingDebits([own], [own, other, canceled]), [own]);
  t.same(pendingDebits([own], []), []);
});
