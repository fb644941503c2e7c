/** Reads of the ledger, for lists, single payments and the answers of finished requests. */
import type { Address, Hex } from "viem";
import type { PageRequest } from "../../core/paging.ts";
import { beforePlace, newestFirst, placeParams, selectPlace } from "../../infra/db/keyset.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { StoredSnapshot } from "../guardrails/reservations.ts";

export type PaymentKind = "spend" | "x402" | "withdrawal" | "incoming";
export type PaymentStatus = "blocked" | "reserved" | "submitted" | "settled" | "voided" | "unknown";

export interface PaymentRow {
  id: string;
  agentId: string;
  agentName: string;
  walletAddress: Address;
  kind: PaymentKind;
  status: PaymentStatus;
  chainId: bigint;
  asset: Address;
  counterparty: Address | null;
  amountAtomic: bigint;
  memo: string | null;
  requestId: string | null;
  apiKey: { id: string; label: string; prefix: string; last4: string } | null;
  denialCode: string | null;
  policy: StoredSnapshot | null;
  url: string | null;
  listingId: string | null;
  requirement: unknown;
  upstreamStatus: number | null;
  delivered: boolean | null;
  failureCode: string | null;
  failureDetail: string | null;
  nonce: Hex | null;
  validBefore: bigint | null;
  txHash: Hex | null;
  blockNumber: bigint | null;
  createdAt: Date;
  updatedAt: Date;
  settledAt: Date | null;
  /** On the database clock. */
  ageSeconds: number;
  createdAtMicros: bigint;
}

const COLUMNS = `${selectPlace("p")}, p.agent_id AS "agentId", a.name AS "agentName", a.wallet_address AS "walletAddress",
  p.kind, p.status, p.chain_id AS "chainId", p.asset, p.counterparty, p.amount AS "amountAtomic", p.memo,
  p.request_id AS "requestId", p.denial_code AS "denialCode", p.policy, p.url, p.listing_id AS "listingId",
  p.requirement, p.upstream_status AS "upstreamStatus", p.delivered, p.failure_code AS "failureCode",
  p.failure_detail AS "failureDetail", p.nonce, p.valid_before AS "validBefore", p.tx_hash AS "txHash",
  p.block_number AS "blockNumber", p.created_at AS "createdAt", p.updated_at AS "updatedAt",
  p.settled_at AS "settledAt",
  extract(epoch FROM clock_timestamp() - p.created_at)::float8 AS "ageSeconds",
  CASE WHEN k.id IS NULL THEN NULL
       ELSE json_build_object('id', k.id, 'label', k.label, 'prefix', k.prefix, 'last4', k.last4) END AS "apiKey"`;
const FROM = `FROM payments p JOIN agents a ON a.id = p.agent_id LEFT JOIN api_keys k ON k.id = p.api_key_id`;

export interface PaymentFilter {
  agentId: string;
  statuses?: readonly string[];
  kinds?: readonly string[];
  /** Inclusive and exclusive. */
  from?: Date;
  to?: Date;
  page: PageRequest;
}

/** Newest first; one row more than the page, to know whether there is another. */
export async function listPayments(sql: Sql, filter: PaymentFilter): Promise<PaymentRow[]> {
  const { rows } = await sql.query<PaymentRow>(
    `SELECT ${COLUMNS} ${FROM}
      WHERE p.agent_id = $1
        AND ($2::text[] IS NULL OR p.status = ANY($2)) AND ($3::text[] IS NULL OR p.kind = ANY($3))
        AND ($4::timestamptz IS NULL OR p.created_at >= $4) AND ($5::timestamptz IS NULL OR p.created_at < $5)
        AND ${beforePlace("p", 6)}
      ${newestFirst("p")} LIMIT $8`,
    [
      filter.agentId,
      filter.statuses ?? null,
      filter.kinds ?? null,
      filter.from ?? null,
      filter.to ?? null,
      ...placeParams(filter.page),
      filter.page.limit + 1,
    ],
  );
  return rows;
}

export async function findPayment(
  sql: Sql,
  key: { agentId: string; paymentId: string },
): Promise<PaymentRow | undefined> {
  const { rows } = await sql.query<PaymentRow>(
    `SELECT ${COLUMNS} ${FROM} WHERE p.agent_id = $1 AND p.id = $2`,
    [key.agentId, key.paymentId],
  );
  return rows[0];
}

/** Payments named by (agent, id) pairs, for a batch of events. */
export async function findPayments(
  sql: Sql,
  keys: readonly { agentId: string; paymentId: string }[],
): Promise<PaymentRow[]> {
  const { rows } = await sql.query<PaymentRow>(
    `SELECT ${COLUMNS} ${FROM}
      WHERE (p.agent_id, p.id) IN (SELECT * FROM unnest($1::text[], $2::text[]))`,
    [keys.map((key) => key.agentId), keys.map((key) => key.paymentId)],
  );
  return rows;
}
