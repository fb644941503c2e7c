// Goal: rows become the right calls with the right gas, share a batch only where none can harm another, and are given up in time.
import { mock } from "node:test";
import t from "tap";
import { decodeFunctionData, multicall3Abi, parseTransaction } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import artifact from "../../server/infra/chain/batcher/Batcher.json" with { type: "json" };
import { BATCHER_ADDRESS, NO_ANSWERS, NO_TRANSFERS } from "../../server/core/batcher.ts";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import {
  Batcher,
  feeCapsOf,
  gasLimitOf,
  hasTooManyFaults,
  initialFees,
  pendingDebits,
  replacementFees,
  signAttempt,
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
  const cheap = toBatchItem(recordOf(lowS), 50_000n);
  t.equal(gasIn(transactionOf([cents, cheap], BATCHER_ADDRESS).calldata), 100_000);
  t.equal(gasIn(transactionOf([cheap, cents], BATCHER_ADDRESS).calldata), 100_000);
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

t.test(
  "a call that only one account may send goes alone, and a wallet is deployed at its cost",
  async (t) => {
    const upto = {
      ...AUTHORIZATION,
      nonce: `permit2:0x${"12".repeat(32)}` as const,
      terms: { scheme: "upto", maximum: "1000", facilitator: AUTHORIZATION.to } as const,
    };
    t.match(itemOf(upto), { solo: true, sender: AUTHORIZATION.to });
    t.equal(pendingDebits([itemOf(upto)], []).length, 0);
  },
);

t.test("the operator's fee caps in wei", async (t) => {
  t.same(feeCapsOf({ maxFeeGwei: 1.5, maxTipGwei: 0.25 }), {
    maxFeeWei: 1_500_000_000n,
    priorityFeeWei: 250_000_000n,
  });
});

t.test("the first offer: twice the base fee and the tip, within the caps", async (t) => {
  const caps = { maxFeeWei: 1_000n, priorityFeeWei: 50n };
  const cases: [string, bigint, bigint, bigint, bigint][] = [
    ["below the caps", 100n, 30n, 230n, 30n],
    ["the tip at its cap", 100n, 60n, 250n, 50n],
    ["the fee at its cap", 490n, 30n, 1_000n, 30n],
    ["a cap below the tip", 0n, 60n, 50n, 50n],
  ];
  for (const [what, baseFeeWei, tip, maxFeeWei, priorityFeeWei] of cases)
    t.same(initialFees(baseFeeWei, tip, caps), { maxFeeWei, priorityFeeWei }, what);
  t.same(
    initialFees(100n, 30n, { maxFeeWei: 20n, priorityFeeWei: 50n }),
    { maxFeeWei: 20n, priorityFeeWei: 20n },
    "never a tip above the whole fee",
  );
});

t.test("a replacement may cost exactly as much as the caps allow", async (t) => {
  const last = { maxFeeWei: 1_000n, priorityFeeWei: 8n };
  const fees = (maxFeeWei: bigint, priorityFeeWei: bigint) =>
    replacementFees({
      first: last,
      last,
      baseFeeWei: 1n,
      priorityFeeWei: 1n,
      caps: { maxFeeWei, priorityFeeWei },
    });
  t.same(
    fees(1_126n, 10n),
    { maxFeeWei: 1_126n, priorityFeeWei: 10n },
    "an eighth more, and one wei",
  );
  t.equal(fees(1_125n, 10n), undefined);
  t.equal(fees(1_126n, 9n), undefined);
});

t.test("a signed attempt", async (t) => {
  const signer = privateKeyToAccount(`0x${"11".repeat(32)}`);
  const tx = { nonce: 7n, to: AUTHORIZATION.asset, calldata: "0x1234" as const, gasLimit: 90_000n };
  const terms = { maxFeeWei: 20n, priorityFeeWei: 3n, attempt: 2, purpose: "work" as const };
  const attempt = await signAttempt(signer, 5_042_002, tx, terms);
  t.match(attempt, { ...terms, answer: undefined, hash: /^0x[0-9a-f]{64}$/ });
  t.match(parseTransaction(attempt.raw), {
    type: "eip1559",
    chainId: 5_042_002,
    nonce: 7,
    to: AUTHORIZATION.asset.toLowerCase(),
    data: "0x1234",
    gas: 90_000n,
    maxFeePerGas: 20n,
    maxPriorityFeePerGas: 3n,
  });
});

t.test("the batcher is used only while it is certain to be there", async (t) => {
  const code = artifact.deployedBytecode;
  let [found, answer]: [string | Error, string] = [code, NO_ANSWERS];
  const warnings: string[] = [];
  const rpc = {
    call: async <T>(method: string) => {
      if (found instanceof Error) throw found;
      return (method === "eth_getCode" ? found : answer) as T;
    },
  };
  const log = { warn: (_: object, text: string) => warnings.push(text) };
  const batcher = new Batcher({ network: { id: "eip155:1" }, rpc, log });
  const ours = { target: BATCHER_ADDRESS, data: NO_TRANSFERS };
  t.same([batcher.address, batcher.probe], [undefined, undefined], "not before it was found");
  found = "0x";
  await batcher.look();
  t.match(warnings.splice(0), [/is not deployed/], "the first look warns");
  found = code;
  await batcher.look();
  t.same([batcher.address, batcher.probe], [BATCHER_ADDRESS, ours]);
  t.equal(batcher.checkProbe({ success: true, data: NO_ANSWERS }), true);
  t.equal(batcher.address, BATCHER_ADDRESS);
  for (const bad of [
    undefined,
    { success: false, data: NO_ANSWERS },
    { success: true, data: "0x" as const },
  ]) {
    await batcher.look();
    t.equal(batcher.checkProbe(bad), false);
    t.same([batcher.address, batcher.probe], [undefined, undefined], "until it is found again");
  }
  t.equal(warnings.length, 3, "each time that it was there before");
  for (const [state, text] of [
    ["0x", "is not deployed"],
    ["0x60", "has different code"],
  ] as const) {
    found = code;
    await batcher.look();
    found = state;
    await batcher.look();
    await batcher.look();
    t.equal(batcher.address, undefined, text);
    t.match(warnings.at(-1), text);
  }
  t.equal(warnings.length, 5, "not again with each look");
  found = code;
  answer = "0x";
  await batcher.look();
  t.equal(batcher.address, undefined, "it is there and does nothing on this chain");
  answer = NO_ANSWERS;
  await batcher.look();
  found = new Error("no answer");
  await batcher.look();
  t.equal(batcher.address, BATCHER_ADDRESS, "no answer proves nothing");
});

t.test("the batcher is looked for again until it is there", async (t) => {
  mock.timers.enable({ apis: ["setInterval"] });
  t.teardown(() => mock.timers.reset());
  let looks = 0;
  let isThere = false;
  const rpc = {
    call: async <T>(method: string) => {
      if (method === "eth_getCode") looks += 1;
      const code = isThere ? artifact.deployedBytecode : "0x";
      return (method === "eth_getCode" ? code : NO_ANSWERS) as T;
    },
  };
  const settled = () => new Promise((resolve) => setImmediate(resolve));
  const log = { warn: () => undefined };
  const batcher = new Batcher({ network: { id: "eip155:1" }, rpc, log, lookAgainMs: 100 });
  batcher.start();
  await settled();
  t.equal(looks, 1, "at once");
  mock.timers.tick(100);
  await settled();
  t.equal(looks, 2);
  isThere = true;
  mock.timers.tick(100);
  await settled();
  t.equal(batcher.address, BATCHER_ADDRESS);
  mock.timers.tick(1_000);
  t.equal(looks, 3, "it is there");
  batcher.checkProbe(undefined);
  mock.timers.tick(100);
  await settled();
  t.equal(looks, 4, "it was lost");
  batcher.checkProbe(undefined);
  batcher.stop();
  mock.timers.tick(1_000);
  t.equal(looks, 4, "stopped");
});
