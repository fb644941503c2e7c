/** What x402-fetch writes and reads of the ledger: delivery beside payment, and the terms it paid on. */
import type { Address } from "viem";
import type { Delivery, LedgerRow, PaymentKey } from "./types.ts";
import type { Sql } from "../../infra/db/pool.ts";

export async function recordDelivery(sql: Sql, key: PaymentKey, seen: Delivery): Promise<void> {
  await sql.query(
    `UPDATE payments SET upstream_status = $3, delivered = $4, updated_at = clock_timestamp()
      WHERE agent_id = $1 AND id = $2`,
    [key.agentId, key.paymentId, seen.upstreamStatus, seen.delivered],
  );
}

interface Row {
  status: LedgerRow["status"];
  chainId: bigint;
  payTo: Address;
  amountAtomic: bigint;
  terms: LedgerRow["terms"];
  delivered: boolean | null;
  ageSeconds: number;
}

export async function findX402Payment(sql: Sql, key: PaymentKey): Promise<LedgerRow | undefined> {
  const { rows } = await sql.query<Row>(
    `SELECT status, chain_id AS "chainId", counterparty AS "payTo", amount AS "amountAtomic",
            requirement AS terms, delivered, extract(epoch FROM clock_timestamp() - created_at)::float8 AS "ageSeconds"
       FROM payments WHERE agent_id = $1 AND id = $2 AND kind = 'x402'`,
    [key.agentId, key.paymentId],
  );
  const [row] = rows;
  return row && { ...row, network: `eip155:${row.chainId}` };
}
