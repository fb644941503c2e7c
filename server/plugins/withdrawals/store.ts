import type { Address, Hex } from "viem";
import type { IdempotencyRef } from "../guardrails/types.ts";
import type { Sql } from "../../infra/db/pool.ts";

export interface WithdrawalReservation {
  outcome:
    | "reserved"
    | "insufficient"
    | "replayed"
    | "expired"
    | "replay"
    | "running"
    | "key_reused"
    | "not_found";
  paymentId: string | null;
  validBefore: bigint | null;
  availableAtomic: bigint | null;
  statusCode: number | null;
  response: unknown;
}

export interface WithdrawalRequest {
  agentId: string;
  paymentId: string;
  chainId: number;
  asset: Address;
  to: Address;
  amountAtomic: bigint;
  nonce: Hex;
  deadlineSeconds: bigint;
  signature: Hex;
  validForSeconds: number;
  balance: { atomic: bigint; blockNumber: bigint };
  requestId: string;
  idempotency: IdempotencyRef | undefined;
}

/** One round trip: single use of the order, and money that is there, under the agent's row lock. */
export async function reserveWithdrawal(
  sql: Sql,
  request: WithdrawalRequest,
): Promise<WithdrawalReservation> {
  const { idempotency, balance } = request;
  const { rows } = await sql.query<WithdrawalReservation>(
    `SELECT outcome, payment_id AS "paymentId", valid_before AS "validBefore",
            available AS "availableAtomic", status_code AS "statusCode", response
       FROM purser_reserve_withdrawal($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`,
    [
      request.agentId,
      request.paymentId,
      String(request.chainId),
      request.asset,
      request.to,
      String(request.amountAtomic),
      request.nonce,
      String(request.deadlineSeconds),
      Buffer.from(request.signature.slice(2), "hex"),
      request.validForSeconds,
      String(balance.atomic),
      String(balance.blockNumber),
      request.requestId,
      idempotency?.subjectId ?? null,
      idempotency?.route ?? null,
      idempotency?.key ?? null,
      idempotency ? Buffer.from(idempotency.bodyHash) : null,
    ],
  );
  const row = rows[0];
  if (!row) throw new Error("purser_reserve_withdrawal returned nothing");
  return row;
}

/** The database's clock decides how old an order is. */
export async function databaseSeconds(sql: Sql): Promise<bigint> {
  const { rows } = await sql.query<{ now: bigint }>(
    "SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now",
  );
  return rows[0]?.now ?? 0n;
}
