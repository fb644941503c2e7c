/**
 * A signed receipt that the buyer can open: what was paid, to whom, when and for what, as the ledger has it at that moment. The
 * signature (EIP-712) is by the account that settles payments, so everybody can check it without a further key.
 */
import { randomBytes } from "node:crypto";
import { getAddress } from "viem";
import { formatAtomic } from "../../core/money.ts";
import { ApiError } from "../../errors.ts";
import type { Db } from "../../infra/db/prisma.ts";
import type { Relayer } from "../../infra/relayer-signer.ts";
import type { MerchantReceipt, SignedMerchantReceipt } from "../../schemas/merchants.ts";
import { presentRefund } from "./refunds.ts";
import type { PaidRow, RefundRow } from "./store.ts";
import { networkName, withoutQuery } from "./view.ts";

/** Verifiers have these types too (packages/purser/src/receipt.ts): a change is a new version of the domain. */
export const RECEIPT_TYPES = {
  Receipt: [
    { name: "id", type: "string" },
    { name: "service", type: "string" },
    { name: "status", type: "string" },
    { name: "message", type: "string" },
    { name: "network", type: "string" },
    { name: "asset", type: "address" },
    { name: "amount", type: "string" },
    { name: "payer", type: "address" },
    { name: "payee", type: "address" },
    { name: "paidAt", type: "string" },
    { name: "transaction", type: "string" },
    { name: "block", type: "string" },
    { name: "blockHash", type: "string" },
    { name: "final", type: "bool" },
    { name: "refunded", type: "string" },
    { name: "refunds", type: "ReceiptRefund[]" },
    { name: "thirdParty", type: "ReceiptProduct" },
    { name: "asOf", type: "string" },
  ],
  ReceiptRefund: [
    { name: "amount", type: "string" },
    { name: "status", type: "string" },
    { name: "transaction", type: "string" },
    { name: "at", type: "string" },
  ],
  ReceiptProduct: [
    { name: "untrusted", type: "bool" },
    { name: "url", type: "string" },
    { name: "method", type: "string" },
  ],
};

export const receiptUrl = (publicUrl: string, id: string): string => `${publicUrl}/receipts/${id}`;

/** Without the time that our other ids have, and longer: to know it is to be allowed to read the receipt. */
const newReceiptId = (): string => `rcp_${randomBytes(24).toString("hex")}`;

/** The receipt's id; of a payment that has one already, that one. */
export async function makeReceipt(db: Db, settlementId: string): Promise<string> {
  // SQL: two requests at the same time get the same one.
  const rows = await db.$queryRaw<{ id: string }[]>`
    INSERT INTO merchant_receipts (id, settlement_id) VALUES (${newReceiptId()}, ${settlementId})
    ON CONFLICT (settlement_id) DO UPDATE SET settlement_id = EXCLUDED.settlement_id RETURNING id`;
  return rows[0]?.id ?? "";
}

export async function receiptOf(db: Db, settlementId: string): Promise<string | undefined> {
  return (await db.merchantReceipt.findUnique({ where: { settlementId } }))?.id;
}

export interface ReceiptFacts {
  id: string;
  service: string;
  paid: PaidRow;
  refunds: readonly RefundRow[];
  asOf: Date;
}

export async function signReceipt(
  facts: ReceiptFacts,
  signer: Pick<Relayer, "address" | "signTypedData"> | undefined,
): Promise<SignedMerchantReceipt> {
  if (!signer) throw new ApiError("service_unavailable");
  const receipt = receiptDocument(facts);
  const typedData = {
    domain: { name: "Purser receipt", version: "1", chainId: facts.paid.chainId },
    types: RECEIPT_TYPES,
    primaryType: "Receipt" as const,
  };
  const signature = await signer.signTypedData({ ...typedData, message: receipt });
  return { receipt, signer: signer.address, signature, ...typedData };
}

/** Every member is text, an address or a boolean, so that the document is signed as it is sent; absent text is empty. */
export function receiptDocument(facts: ReceiptFacts): MerchantReceipt {
  const { id, service, paid, refunds, asOf } = facts;
  const network = networkName(paid.chainId);
  const isPaid = paid.status === "settled";
  return {
    id,
    service,
    status: isPaid ? "paid" : "removed",
    message: messageOf(paid),
    network,
    asset: getAddress(paid.asset),
    amount: formatAtomic(paid.amountAtomic),
    payer: getAddress(paid.from),
    payee: getAddress(paid.to),
    paidAt: (isPaid && paid.settledAt?.toISOString()) || "",
    transaction: (isPaid && paid.txHash) || "",
    block: (isPaid && paid.blockNumber?.toString()) || "",
    blockHash: (isPaid && paid.blockHash) || "",
    final: paid.isFinal,
    refunded: formatAtomic(paid.refundedAtomic),
    refunds: refunds.map((refund) => {
      const { amount, status, txHash, settledAt } = presentRefund(refund, network);
      return { amount, status, transaction: txHash ?? "", at: settledAt ?? "" };
    }),
    thirdParty: {
      untrusted: true,
      url: withoutQuery(paid.resourceUrl) ?? "",
      method: paid.resourceMethod ?? "",
    },
    asOf: asOf.toISOString(),
  };
}

/** Only settled payments get a receipt: one that is not settled any more was removed from the chain. */
function messageOf({ status, isFinal }: PaidRow): string {
  if (status === "settled")
    return isFinal
      ? "The payment is on the chain, and final."
      : "The payment is on the chain. It is final after a few more blocks.";
  return status === "queued" || status === "submitted"
    ? "A reorganisation of the chain removed this payment. It is sent again while it is valid; until then the payee does not have the money."
    : "A reorganisation of the chain removed this payment, and it was not paid again. The payer has the money.";
}
