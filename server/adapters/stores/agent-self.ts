import type { Address } from "viem";
import type { Sql } from "../db/pool.ts";

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
