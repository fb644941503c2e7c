// An agent straight in the database, for tests of decisions that need neither chain nor HTTP.
import { randomBytes } from "node:crypto";
import type { Address } from "viem";
import type { Pool } from "../../server/infra/db/pool.ts";
import { newId } from "../../server/core/ids.ts";
import type { ReserveRequest } from "../../server/plugins/guardrails/types.ts";

export const CHAIN_ID = 5_042_002;
export const ASSET: Address = "0x3600000000000000000000000000000000000000";
export const PAYEE: Address = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";

export interface SeededAgent {
  ownerId: string;
  agentId: string;
  walletAddress: Address;
}

export const randomAddress = (): Address => `0x${randomBytes(20).toString("hex")}`;

export async function seedAgent(
  pool: Pool,
  rules: { dailyLimit: bigint; perPaymentLimit?: bigint | null; allowlist?: Address[] },
): Promise<SeededAgent> {
  const ownerId = newId("own");
  const agentId = newId("agt");
  const walletAddress = randomAddress();
  await pool.query("INSERT INTO owners (id, address) VALUES ($1, $2)", [ownerId, randomAddress()]);
  await pool.query(
    `INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit, per_payment_limit)
     VALUES ($1, $2, 'seeded', $3, $4, $5, $6)`,
    [
      agentId,
      ownerId,
      `eip155:${CHAIN_ID}`,
      walletAddress,
      String(rules.dailyLimit),
      rules.perPaymentLimit == null ? null : String(rules.perPaymentLimit),
    ],
  );
  for (const address of rules.allowlist ?? [PAYEE])
    await pool.query("INSERT INTO allowlist_entries (agent_id, address) VALUES ($1, $2)", [
      agentId,
      address,
    ]);
  return { ownerId, agentId, walletAddress };
}

export function reserveRequest(
  agent: SeededAgent,
  amountAtomic: bigint,
  more: Partial<ReserveRequest> = {},
): ReserveRequest {
  return {
    agentId: agent.agentId,
    apiKeyId: null,
    walletAddress: agent.walletAddress,
    kind: "spend",
    chainId: CHAIN_ID,
    asset: ASSET,
    to: PAYEE,
    amountAtomic,
    nonce: `0x${randomBytes(32).toString("hex")}`,
    validForSeconds: 120,
    requestId: null,
    balance: { atomic: 10n ** 30n, blockNumber: 1n },
    ...more,
  };
}
