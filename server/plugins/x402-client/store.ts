import type { PaymentKey } from "../payments/pay.ts";
import type { DeliveryRecord } from "./types.ts";
import type { Sql } from "../../infra/db/pool.ts";

/** What became of the delivery, beside what became of the payment. */
export async function recordDelivery(
  sql: Sql,
  key: PaymentKey,
  seen: DeliveryRecord,
): Promise<void> {
  await sql.query(
    `UPDATE payments SET upstream_status = $3, delivered = $4, updated_at = clock_timestamp()
      WHERE agent_id = $1 AND id = $2`,
    [key.agentId, key.paymentId, seen.upstreamStatus, seen.delivered],
  );
}
