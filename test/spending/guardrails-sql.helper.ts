// Inserts agents directly into the database, for tests of decisions that need neither chain nor HTTP.
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

/** A limit that is null or missing is not set. */
export interface SeededRules {
  dailyLimit: bigint;
  perPaymentLimit?: bigint | null;
  weeklyLimit?: bigint | null;
  monthlyLimit?: bigint | null;
  paymentsPerHour?: number | null;
  allowlist?: Address[];
}

export async function seedAgent(pool: Pool, rules: SeededRules): Promise<SeededAgent> {
  const ownerId = newId("own");
  const agentId = newId("agt");
  const walletAddress = randomAddress();
  await pool.query("INSERT INTO owners (id, address) VALUES ($1, $2)", [ownerId, randomAddress()]);
  await pool.query(
    `INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit) VALUES ($1, $2, 'seeded', $3, $4, $5)`,
    [agentId, ownerId, `eip155:${CHAIN_ID}`, walletAddress, String(rules.dailyLimit)],
  );
  await setRules(pool, agentId, rules);
  for (const address of rules.allowlist ?? [PAYEE])
    await pool.query("INSERT INTO allowlist_entries (agent_id, address) VALUES ($1, $2)", [
      agentId,
      address,
    ]);
  return { ownerId, agentId, walletAddress };
}

const text = (value: bigint | number | null | undefined): string | null =>
  value == null ? null : String(value);

/** Sets all of an agent's limits; missing ones are removed. */
export async function setRules(pool: Pool, agentId: string, rules: SeededRules): Promise<void> {
  await pool.query(
    `UPDATE agents SET daily_limit = $2, per_payment_limit = $3, weekly_limit = $4, monthly_limit = $5,
                       payments_per_hour = $6 WHERE id = $1`,
    [
      agentId,
      text(rules.dailyLimit),
      text(rules.perPaymentLimit),
      text(rules.weeklyLimit),
      text(rules.monthlyLimit),
      text(rules.paymentsPerHour),
    ],
  );
}

/** Sets the limits of one payee; `expiresInMs` counts from now on the database's clock. */
export async function setPayee(
  pool: Pool,
  agentId: string,
  payee: Address,
  rules: { dailyLimit?: bigint | null; perPaymentLimit?: bigint | null; expiresInMs?: number },
): Promise<void> {
  await pool.query(
    `UPDATE allowlist_entries SET daily_limit = $3, per_payment_limit = $4,
            expires_at = clock_timestamp() + $5::numeric * interval '1 millisecond'
      WHERE agent_id = $1 AND address = $2`,
    [
      agentId,
      payee,
      text(rules.dailyLimit),
      text(rules.perPaymentLimit),
      rules.expiresInMs ?? null,
    ],
  );
}

/** Makes time pass for one agent or one budget: shifts all of its timestamps into the past. */
export async function passTime(pool: Pool, agentId: string, interval: string): Promise<void> {
  await pool.query(
    `WITH span AS (SELECT $2::interval AS passed),
     rows AS (UPDATE payments SET created_at = created_at - passed FROM span WHERE agent_id = $1),
     sums AS (UPDATE payment_sums SET after_at = after_at - passed, to_at = to_at - passed
                FROM span WHERE agent_id = $1),
     windows AS (UPDATE spending_windows SET after_at = after_at - passed, to_at = to_at - passed
                   FROM span WHERE agent_id = $1),
     entries AS (UPDATE budget_payments SET at = at - passed FROM span WHERE budget_id = $1),
     budget AS (UPDATE budgets SET summed_to_at = summed_to_at - passed FROM span WHERE id = $1),
     payees AS (UPDATE allowlist_entries SET expires_at = expires_at - passed FROM span WHERE agent_id = $1)
     UPDATE agents SET window_tail_at = window_tail_at - passed, summed_to_at = summed_to_at - passed
       FROM span WHERE id = $1`,
    [agentId, interval],
  );
}

/** A limit that is null or missing is not set. */
export async function seedBudget(
  pool: Pool,
  ownerId: string,
  limits: { daily?: bigint | null; weekly?: bigint | null; monthly?: bigint | null },
): Promise<string> {
  const id = newId("bud");
  await pool.query(
    `INSERT INTO budgets (id, owner_id, name, daily_limit, weekly_limit, monthly_limit) VALUES ($1, $2, $1, $3, $4, $5)`,
    [id, ownerId, text(limits.daily), text(limits.weekly), text(limits.monthly)],
  );
  return id;
}

/** As server/plugins/tasks opens it, without an end. */
export async function seedTask(
  pool: Pool,
  agentId: string,
  id: string,
  ceilingAtomic: bigint,
): Promise<void> {
  await pool.query("INSERT INTO tasks (agent_id, id, ceiling) VALUES ($1, $2, $3)", [
    agentId,
    id,
    String(ceilingAtomic),
  ]);
}

/** As server/plugins/budgets does it: the next payment counts in exactly these. */
export async function setBudgets(
  pool: Pool,
  agentId: string,
  budgetIds: readonly string[],
): Promise<void> {
  await pool.query("UPDATE agents SET budget_ids = $2 WHERE id = $1", [
    agentId,
    budgetIds.toSorted(),
  ]);
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
