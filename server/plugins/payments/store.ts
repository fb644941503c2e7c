/** Reads payments from the ledger: lists, single payments, and the results of finished requests. */
import type { Address, Hex } from "viem";
import type { PageRequest, Place } from "../../core/paging.ts";
import {
  atomicOf,
  atomicOrNull,
  placeOf,
  readKeyset,
  databaseNow,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { StoredSnapshot } from "../guardrails/store.ts";

type PaymentKind = "spend" | "x402" | "withdrawal" | "incoming" | "deposit";
type PaymentStatus = "blocked" | "reserved" | "submitted" | "settled" | "voided" | "unknown";

export interface PaymentRow extends Place {
  agentId: string;
  agentName: string;
  walletAddress: Address;
  kind: PaymentKind;
  status: PaymentStatus;
  chainId: bigint;
  asset: Address;
  counterparty: Address | null;
  amountAtomic: bigint;
  /** The signed maximum, where less may be charged. */
  maximumAtomic: bigint | null;
  memo: string | null;
  taskId: string | null;
  requestId: string | null;
  apiKey: { id: string; label: string; prefix: string; last4: string } | null;
  /** How often the same request was refused again. */
  repeats: number;
  denialCode: string | null;
  policy: StoredSnapshot | null;
  url: string | null;
  listingId: string | null;
  requirement: unknown;
  evidence: unknown;
  upstreamStatus: number | null;
  delivered: boolean | null;
  failureCode: string | null;
  failureDetail: string | null;
  nonce: Hex | null;
  validBefore: bigint | null;
  txHash: Hex | null;
  blockNumber: bigint | null;
  channelId: Hex | null;
  /** Of a payment through a channel: the signed ceiling, what the seller charged, and the voucher. */
  ceilingAtomic: bigint | null;
  chargedAtomic: bigint | null;
  voucher: Uint8Array | null;
  finalAt: Date | null;
  createdAt: Date;
  updatedAt: Date;
  settledAt: Date | null;
  /** By the database clock. */
  ageSeconds: number;
}

export interface PaymentFilter {
  agentId: string;
  statuses?: readonly string[];
  kinds?: readonly string[];
  task?: string;
  /** `from` is inclusive, `to` is exclusive. */
  from?: Date;
  to?: Date;
  page: PageRequest;
}

/** Newest first. Returns one row more than the page, to show whether there is another page. */
export async function listPayments(db: Db, filter: PaymentFilter): Promise<PaymentRow[]> {
  const { agentId, statuses, kinds, task, from, to } = filter;
  const within: Prisma.PaymentWhereInput = {
    agentId,
    ...(statuses === undefined ? {} : { status: { in: [...statuses] } }),
    ...(kinds === undefined ? {} : { kind: { in: [...kinds] } }),
    ...(task === undefined ? {} : { taskId: task }),
    createdAt: { ...(from && { gte: from }), ...(to && { lt: to }) },
  };
  const stored = await readKeyset(filter.page, (where, order) =>
    db.payment.findMany({
      where: { AND: [within, where] },
      ...order,
    }),
  );
  return withNames(db, stored);
}

/** Payments by (agent, id) pairs, for a batch of events. */
export async function findPayments(
  db: Db,
  keys: readonly { agentId: string; paymentId: string }[],
): Promise<PaymentRow[]> {
  const stored = await db.payment.findMany({
    where: { OR: keys.map(({ agentId, paymentId }) => ({ agentId, id: paymentId })) },
  });
  return withNames(db, stored);
}

type Stored = Prisma.PaymentGetPayload<object>;

/** Adds each payment's agent and API key (payments have no foreign key to API keys). */
async function withNames(db: Db, payments: readonly Stored[]): Promise<PaymentRow[]> {
  if (payments.length === 0) return [];
  const ids = (list: readonly (string | null)[]) => ({
    in: [...new Set(list.filter((id) => id !== null))],
  });
  const [agents, keys, now] = await Promise.all([
    db.agent.findMany({
      where: { id: ids(payments.map(({ agentId }) => agentId)) },
      select: { id: true, name: true, walletAddress: true },
    }),
    db.apiKey.findMany({
      where: { id: ids(payments.map(({ apiKeyId }) => apiKeyId)) },
      select: { id: true, label: true, prefix: true, last4: true },
    }),
    databaseNow(db),
  ]);
  const agentOf = new Map(agents.map((agent) => [agent.id, agent]));
  const keyOf = new Map(keys.map((key) => [key.id, key]));
  return payments.flatMap((payment) => {
    const agent = agentOf.get(payment.agentId);
    const { amount, maximum, ceiling, charged, apiKeyId, logIndex: _, ...facts } = payment;
    return agent === undefined
      ? []
      : {
          ...(facts as typeof facts & Pick<PaymentRow, StoredAsText>),
          ...placeOf(payment),
          agentName: agent.name,
          walletAddress: agent.walletAddress as Address,
          amountAtomic: atomicOf(amount),
          maximumAtomic: atomicOrNull(maximum),
          ceilingAtomic: atomicOrNull(ceiling),
          chargedAtomic: atomicOrNull(charged),
          apiKey: keyOf.get(apiKeyId ?? "") ?? null,
          ageSeconds: (now.getTime() - payment.createdAt.getTime()) / 1000,
        };
  });
}

/** Columns with a narrower type than Prisma's, which the table's constraints guarantee. */
type StoredAsText =
  | "kind"
  | "status"
  | "asset"
  | "counterparty"
  | "policy"
  | "nonce"
  | "txHash"
  | "channelId";

const ONE_PAYMENT = {
  name: "payment",
  text: `
    SELECT (extract(epoch FROM p.created_at) * 1000000)::bigint AS "createdAtMicros", p.id,
           p.agent_id AS "agentId", a.name AS "agentName", a.wallet_address AS "walletAddress",
           p.kind, p.status, p.chain_id AS "chainId", p.asset, p.counterparty,
           p.amount AS "amountAtomic", p.maximum AS "maximumAtomic", p.memo, p.task_id AS "taskId", p.request_id AS "requestId", p.repeats,
           p.denial_code AS "denialCode", p.policy, p.url, p.listing_id AS "listingId",
           p.requirement, p.evidence, p.upstream_status AS "upstreamStatus", p.delivered,
           p.failure_code AS "failureCode", p.failure_detail AS "failureDetail", p.nonce,
           p.valid_before AS "validBefore", p.tx_hash AS "txHash", p.block_number AS "blockNumber", p.final_at AS "finalAt",
           p.channel_id AS "channelId", p.ceiling AS "ceilingAtomic", p.charged AS "chargedAtomic", p.voucher,
           p.created_at AS "createdAt", p.updated_at AS "updatedAt", p.settled_at AS "settledAt",
           extract(epoch FROM clock_timestamp() - p.created_at)::float8 AS "ageSeconds",
           CASE WHEN k.id IS NULL THEN NULL
                ELSE json_build_object('id', k.id, 'label', k.label, 'prefix', k.prefix, 'last4', k.last4)
            END AS "apiKey"
      FROM payments p JOIN agents a ON a.id = p.agent_id LEFT JOIN api_keys k ON k.id = p.api_key_id
     WHERE p.agent_id = $1 AND p.id = $2`,
};

export async function findPayment(
  sql: Sql,
  key: { agentId: string; paymentId: string },
): Promise<PaymentRow | undefined> {
  // SQL: read by every spend; prepared, with the names in one round trip instead of four.
  const { rows } = await sql.query<PaymentRow>({
    ...ONE_PAYMENT,
    values: [key.agentId, key.paymentId],
  });
  return rows[0];
}
