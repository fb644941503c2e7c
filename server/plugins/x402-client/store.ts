import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import type { PaymentKey } from "../payments/pay.ts";
import type { DeliveryRecord } from "./types.ts";

/** What became of the delivery, beside what became of the payment. */
export async function recordDelivery(db: Db, key: PaymentKey, seen: DeliveryRecord): Promise<void> {
  const { upstreamStatus, delivered } = seen;
  await db.payment.updateMany({
    where: { agentId: key.agentId, id: key.paymentId },
    data: { upstreamStatus, delivered, updatedAt: await databaseNow(db) },
  });
}
