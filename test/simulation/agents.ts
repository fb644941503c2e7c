// The agents that every world starts with, and how their requests look when they are authenticated.
import type { Address, Hex } from "viem";

export interface KnownAgent {
  id: string;
  keyId: string;
  wallet: Address;
  owner: { id: string; address: Address; key: Hex };
  dailyLimit: bigint;
  payees: Address[];
}

/** Agents as the database's JSON has them. */
export const agentsOf = (
  json: (Omit<KnownAgent, "dailyLimit"> & { dailyLimit: string })[],
): KnownAgent[] => json.map((agent) => ({ ...agent, dailyLimit: BigInt(agent.dailyLimit) }));

export const asAgent = (agent: KnownAgent) => ({
  agent: {
    id: agent.id,
    ownerId: agent.owner.id,
    apiKeyId: agent.keyId,
    walletAddress: agent.wallet,
    network: "eip155:84532",
    name: "agent",
    status: "active",
    fetch: "any",
    expiresAt: null,
  },
});

export const asOwner = ({ owner: { id, address } }: Pick<KnownAgent, "owner">) => ({
  owner: { id, address, chainId: 0, second: null, sessionId: "ses_simulation" },
});

/** Decimal USDC. */
export const usdc = (atomic: bigint): string =>
  `${atomic / 1_000_000n}.${String(atomic % 1_000_000n).padStart(6, "0")}`;
