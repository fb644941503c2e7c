/** `GET /api/agents/me`: an agent's own view of its wallet, rules and key. */
import { getAddress, type Address } from "viem";
import type { SelfRow } from "../../adapters/stores/agent-self.ts";
import type { AllowlistRow } from "../../adapters/stores/allowlist.ts";
import type { AgentSelf } from "../../schemas/payments.ts";
import { limitsOnWire } from "../guardrails/evaluate.ts";
import type { Limits } from "../guardrails/types.ts";
import { formatAtomic } from "../money.ts";

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
