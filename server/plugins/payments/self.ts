/** `GET /api/agents/me`: an agent's own view of its wallet, rules and key. */
import { type Address, getAddress } from "viem";
import { formatAtomic } from "../../core/money.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { AgentSelf } from "../../schemas/payments.ts";
import type { AllowlistRow } from "../agents/allowlist-store.ts";
import { limitsOnWire } from "../guardrails/explain.ts";
import type { Limits } from "../guardrails/types.ts";

export function presentSelf(
  row: SelfRow,
  around: {
    limits: Limits;
    allowlist: readonly AllowlistRow[];
    balanceAtomic: bigint | undefined;
    asset: Address;
  },
): AgentSelf {
  const wallet = getAddress(row.walletAddress);
  return {
    id: row.id,
    name: row.name,
    status: row.expired && row.status === "active" ? "expired" : row.status,
    expired: row.expired,
    wallet,
    walletAddress: wallet,
    network: row.network,
    asset: getAddress(around.asset),
    balance: around.balanceAtomic === undefined ? null : formatAtomic(around.balanceAtomic),
    limits: limitsOnWire(around.limits),
    perPaymentLimit:
      row.perPaymentLimitAtomic === null ? null : formatAtomic(row.perPaymentLimitAtomic),
    expiresAt: row.expiresAt?.toISOString() ?? null,
    allowlist: around.allowlist.map((entry) => ({
      address: getAddress(entry.address),
      label: entry.label,
      createdAt: entry.createdAt.toISOString(),
    })),
    key: {
      id: row.keyId,
      label: row.keyLabel,
      prefix: row.keyPrefix,
      last4: row.keyLast4,
      createdAt: row.keyCreatedAt.toISOString(),
      expiresAt: row.keyExpiresAt?.toISOString() ?? null,
    },
  };
}

export interface SelfRow {
  id: string;
  name: string;
  network: string;
  walletAddress: Address;
  status: string;
  expired: boolean;
  expiresAt: Date | null;
  perPaymentLimitAtomic: bigint | null;
  keyId: string;
  keyLabel: string;
  keyPrefix: string;
  keyLast4: string;
  keyCreatedAt: Date;
  keyExpiresAt: Date | null;
}

/** An agent together with the key that asks. */
export async function findSelf(
  sql: Sql,
  args: { agentId: string; apiKeyId: string },
): Promise<SelfRow | undefined> {
  const { rows } = await sql.query<SelfRow>(
    `SELECT a.id, a.name, a.network, a.wallet_address AS "walletAddress", a.status,
            coalesce(a.expires_at <= now(), false) AS expired, a.expires_at AS "expiresAt",
            a.per_payment_limit AS "perPaymentLimitAtomic", k.id AS "keyId", k.label AS "keyLabel",
            k.prefix AS "keyPrefix", k.last4 AS "keyLast4", k.created_at AS "keyCreatedAt",
            k.expires_at AS "keyExpiresAt"
       FROM agents a JOIN api_keys k ON k.agent_id = a.id AND k.id = $2
      WHERE a.id = $1`,
    [args.agentId, args.apiKeyId],
  );
  return rows[0];
}
