/** `GET /api/agents/me`: an agent's own view of its wallet, rules and key. */
import { type Address, getAddress } from "viem";
import { formatAtomic } from "../../core/money.ts";
import { atomicOrNull } from "../../infra/db/decimal.ts";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import type { AgentSelf } from "../../schemas/payments.ts";
import { balanceOn, balancesOnWire, type WalletBalances } from "../agents/balances.ts";
import type { AllowlistRow } from "../agents/allowlist.ts";
import { limitsOnWire } from "../guardrails/explain.ts";
import type { Limits } from "../guardrails/types.ts";

export function presentSelf(
  row: SelfRow,
  around: {
    limits: Limits;
    allowlist: readonly AllowlistRow[];
    balances: WalletBalances | undefined;
    asset: Address;
  },
): AgentSelf {
  const wallet = getAddress(row.walletAddress);
  const own = balanceOn(around.balances, row.network);
  return {
    id: row.id,
    name: row.name,
    status: row.expired && row.status === "active" ? "expired" : row.status,
    expired: row.expired,
    wallet,
    walletAddress: wallet,
    network: row.network,
    asset: getAddress(around.asset),
    balance: own === undefined ? null : formatAtomic(own.atomic),
    balances: balancesOnWire(around.balances),
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
  db: Db,
  args: { agentId: string; apiKeyId: string },
): Promise<SelfRow | undefined> {
  const key = await db.apiKey.findUnique({
    where: { id: args.apiKeyId, agentId: args.agentId },
    include: { agent: true },
  });
  if (key === null) return undefined;
  const now = await databaseNow(db);
  const { agent } = key;
  return {
    id: agent.id,
    name: agent.name,
    network: agent.network,
    walletAddress: agent.walletAddress as Address,
    status: agent.status,
    expired: agent.expiresAt !== null && agent.expiresAt <= now,
    expiresAt: agent.expiresAt,
    perPaymentLimitAtomic: atomicOrNull(agent.perPaymentLimit),
    keyId: key.id,
    keyLabel: key.label,
    keyPrefix: key.prefix,
    keyLast4: key.last4,
    keyCreatedAt: key.createdAt,
    keyExpiresAt: key.expiresAt,
  };
}
