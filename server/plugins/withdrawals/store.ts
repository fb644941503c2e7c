import type { Address, Hex } from "viem";
import type { Proof } from "../audit/verify.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import { bytea, type Sql } from "../../infra/db/pool.ts";
import { toJsonb } from "../../core/foreign-text.ts";

export interface WithdrawalReservation {
  outcome:
    | "reserved"
    | "insufficient"
    | "gas"
    | "replayed"
    | "expired"
    | "clock_apart"
    | "replay"
    | "running"
    | "key_reused"
    | "members_changed"
    | "given_up"
    | "not_found";
  paymentId: string | null;
  validBefore: bigint | null;
  availableAtomic: bigint | null;
  statusCode: number | null;
  response: string | null;
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
  /** Of a team: the version of the list with which the signature was counted. */
  members?: number | undefined;
  /** The signed order as stored in the audit log. */
  proof: Proof;
  validForSeconds: number;
  balance: { atomic: bigint; blockNumber: bigint; timestampSeconds: bigint };
  /** The gas cost to reserve, in units of core/gas.ts. */
  gasHold: bigint;
  requestId: string;
  idempotency: IdempotencyRef | undefined;
}

/**
 * One round trip, under the agent's row lock: checks that the order is used once and that the funds are there.
 */
export async function reserveWithdrawal(
  sql: Sql,
  request: WithdrawalRequest,
): Promise<WithdrawalReservation> {
  const { rows } = await sql.query<WithdrawalReservation>(
    `SELECT outcome, payment_id AS "paymentId", valid_before AS "validBefore",
            available AS "availableAtomic", status_code AS "statusCode", response
       FROM purser_reserve_withdrawal($1)`,
    [toJsonb(reserveParams(request))],
  );
  const row = rows[0];
  if (!row) throw new Error("purser_reserve_withdrawal returned nothing");
  return row;
}

/**
 * The JSON that purser_reserve_withdrawal reads; integers as strings, because JSON numbers would lose digits.
 */
function reserveParams({ idempotency, balance, ...request }: WithdrawalRequest) {
  return {
    agent_id: request.agentId,
    payment_id: request.paymentId,
    chain_id: request.chainId,
    asset: request.asset,
    payee: request.to,
    amount: request.amountAtomic,
    nonce: request.nonce,
    deadline: request.deadlineSeconds,
    proof: request.proof,
    members: request.members,
    signature: bytea(Buffer.from(request.signature.slice(2), "hex")),
    valid_seconds: request.validForSeconds,
    balance: balance.atomic,
    balance_block: balance.blockNumber,
    head_time: balance.timestampSeconds,
    gas_hold: request.gasHold,
    request_id: request.requestId,
    subject_id: idempotency?.subjectId,
    route: idempotency?.route,
    key: idempotency?.key,
    body_hash: idempotency && bytea(idempotency.bodyHash),
  };
}

/** The database clock decides how old an order is. */
export async function databaseSeconds(sql: Sql): Promise<bigint> {
  const { rows } = await sql.query<{ now: bigint }>(
    "SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now",
  );
  return rows[0]?.now ?? 0n;
}
