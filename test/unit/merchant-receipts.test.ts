// Goal: a receipt never says "paid" for a payment that a reorganisation removed, and has no member that cannot be signed.
import t from "tap";
import { hashTypedData } from "viem";
import { RECEIPT_TYPES, receiptDocument } from "../../server/plugins/merchants/receipts.ts";
import type { PaidRow } from "../../server/plugins/merchants/store.ts";

const address = `0x${"1".repeat(40)}` as const;
const hash = `0x${"2".repeat(64)}` as const;
const paid: PaidRow = {
  id: "pay_1",
  createdAtMicros: 0n,
  status: "settled",
  chainId: 84_532,
  asset: address,
  from: address,
  to: address,
  nonce: hash,
  amountAtomic: 1_500_000n,
  terms: null,
  resourceUrl: "https://api.example/a?key=secret",
  resourceMethod: null,
  resourceDescription: null,
  delivery: "not_reported",
  txHash: hash,
  blockNumber: 7n,
  blockHash: hash,
  isFinal: false,
  errorReason: null,
  errorMessage: null,
  createdAt: new Date(0),
  settledAt: new Date(1_000),
  refundedAtomic: 0n,
  refundCount: 0,
};
const of = (over: Partial<PaidRow>) =>
  receiptDocument({
    id: "rcp_1",
    service: "https://purser.example",
    paid: { ...paid, ...over },
    refunds: [],
    asOf: new Date(0),
  });

t.test("states of the payment", async (t) => {
  const absent = { status: "removed", paidAt: "", transaction: "", block: "", blockHash: "" };
  for (const [over, shown] of [
    [{}, { status: "paid", final: false, block: "7", message: /after a few more blocks/ }],
    [{ isFinal: true }, { status: "paid", final: true, message: /final\.$/ }],
    // The row keeps the hash of the transaction that is gone.
    [{ status: "submitted" }, { ...absent, message: /It is sent again/ }],
    [
      { status: "queued", txHash: null },
      { ...absent, message: /It is sent again/ },
    ],
    [{ status: "expired" }, { ...absent, message: /not paid again/ }],
    [{ status: "failed" }, { ...absent, message: /not paid again/ }],
  ] as const) {
    const document = of(over);
    t.match(document, { amount: "1.5", thirdParty: { url: "https://api.example/a" }, ...shown });
    const domain = { name: "Purser receipt", version: "1", chainId: 84_532 };
    const typed = { domain, types: RECEIPT_TYPES, primaryType: "Receipt", message: document };
    t.match(hashTypedData(typed as never), /^0x/);
    const { Receipt: members } = RECEIPT_TYPES;
    t.same(
      Object.keys(document),
      members.map(({ name }) => name),
      "all of it is signed",
    );
  }
});
