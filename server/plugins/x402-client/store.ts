/** What x402-fetch writes and reads of the ledger: delivery beside payment, and the terms it paid on. */
import type { Address } from "viem";
import type { Delivery, LedgerRow, PaymentKey } from "./types.ts";
import { atomicOf } from "../../infra/db/decimal.ts";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";

export async function recordDelivery(db: Db, key: PaymentKey, seen: Delivery): Promise<void> {
  const { upstreamStatus, delivered } = seen;
  await db.payment.updateMany({
    where: { agentId: key.agentId, id: key.paymentId },
    data: { upstreamStatus, delivered, updatedAt: await databaseNow(db) },
  });
}

export async function findX402Payment(db: Db, key: PaymentKey): Promise<LedgerRow | undefined> {
  const found = await db.payment.findFirst({
    where: { agentId: key.agentId, id: key.paymentId, kind: "x402" },
  });
  if (found === null) return undefined;
  const now = await databaseNow(db);
  return {
    status: found.status as LedgerRow["status"],
    network: `eip155:${found.chainId}`,
    payTo: found.counterparty as Address,
    amountAtomic: atomicOf(found.amount),
    terms: found.requirement as unknown as LedgerRow["terms"],
    delivered: found.delivered,
    ageSeconds: (now.getTime() - found.createdAt.getTime()) / 1000,
  };
}
