import { getAddress } from "viem";
import {
  insertAgent,
  outstandingOf,
  updateAgent,
  type AgentChange,
  type AgentRow,
} from "./store.ts";
import { upsertAllowlist } from "./allowlist.ts";
import { insertApiKey, type ApiKeyRow, revokeApiKeys } from "../auth/api-keys.ts";
import { insertWallet } from "../custody/store.ts";
import type { CreateAgentBody, UpdateAgentBody } from "../../schemas/agents.ts";
import type { Custody } from "../custody/custody.ts";
import { newId } from "../../core/ids.ts";
import { formatAtomic } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import { createApiKey } from "../auth/api-keys.ts";
import {
  changeAgent,
  writeAudit,
  ownAgent,
  readAllowlist,
  readLimit,
  readName,
  readTime,
  refuseField,
  type OwnerCall,
} from "./change.ts";
import { ApiError } from "../../errors.ts";
import { assertAllKnown, type ReadAllBalances } from "./balances.ts";

export interface Deps {
  custody: Custody;
  /** Configured ones; the first is the default. */
  networks: readonly [NetworkFacts, ...NetworkFacts[]];
}

/** An agent, its wallet, its allowlist and its first key: all of it or nothing. */
export async function createAgent(
  call: OwnerCall,
  body: CreateAgentBody,
  { custody, networks }: Deps,
): Promise<{ agent: AgentRow; apiKey: string; key: ApiKeyRow }> {
  const network = body.network === undefined ? networks[0] : findNetwork(body.network, networks);
  if (!network)
    throw refuseField(
      "validation_failed",
      "body.network",
      `must be one of ${networks.map(({ id }) => id).join(", ")}`,
    );
  const rules = {
    name: readName(body.name),
    dailyLimitAtomic: readLimit(body.dailyLimit, "body.dailyLimit"),
    perPaymentLimitAtomic: readPerPaymentLimit(body.perPaymentLimit) ?? null,
    expiresAt:
      typeof body.expiresAt === "string" ? readTime(body.expiresAt, "body.expiresAt") : null,
  };
  const allowlist = readAllowlist(body.allowlist ?? []);
  const id = newId("agt");
  const { address, sealed } = custody.createWallet(id);
  const { apiKey, ...keyFacts } = createApiKey();

  return call.prisma.$transaction(async (tx) => {
    const agent = await insertAgent(tx, {
      id,
      ownerId: call.owner.id,
      network: network.id,
      walletAddress: address,
      ...rules,
    });
    // The database's clock judges, as it will at each payment.
    if (agent.expired)
      throw refuseField("validation_failed", "body.expiresAt", "must be in the future");
    await insertWallet(tx, { agentId: id, address, sealed });
    if (allowlist.length > 0) await upsertAllowlist(tx, id, allowlist);
    const key = await insertApiKey(tx, {
      id: newId("key"),
      agentId: id,
      label: "First key",
      expiresAt: null,
      ...keyFacts,
    });
    const after = {
      ...ruleFacts(agent),
      network: agent.network,
      walletAddress: getAddress(agent.walletAddress),
      allowlist: allowlist.map((entry) => ({ ...entry, address: getAddress(entry.address) })),
      key: { id: key.id, prefix: key.prefix, last4: key.last4 },
    };
    await writeAudit(tx, call, id, { action: "agent.created", before: null, after });
    return { agent, apiKey, key };
  });
}

/** Changes rules. Only what really changed is written, and audited as before and after. */
export async function editAgent(
  call: OwnerCall,
  agentId: string,
  body: UpdateAgentBody,
): Promise<AgentRow> {
  const wanted = readChange(body);
  return changeAgent(call, agentId, async (tx, agent, audit) => {
    const change = onlyChanges(agent, wanted);
    if (Object.keys(change).length === 0) return agent;
    const updated = await updateAgent(tx, agentId, change);
    const { status: statusBefore, ...before } = ruleFacts(agent, change);
    const { status: statusAfter, ...after } = ruleFacts(updated, change);
    if (Object.keys(after).length > 0) await audit({ action: "agent.updated", before, after });
    if (change.status !== undefined)
      await audit({
        action: change.status === "paused" ? "agent.paused" : "agent.resumed",
        before: { status: statusBefore },
        after: { status: statusAfter },
      });
    return updated;
  });
}

function readChange(body: UpdateAgentBody): AgentChange {
  const perPaymentLimitAtomic = readPerPaymentLimit(body.perPaymentLimit);
  return {
    ...(body.name === undefined ? {} : { name: readName(body.name) }),
    ...(body.dailyLimit === undefined
      ? {}
      : { dailyLimitAtomic: readLimit(body.dailyLimit, "body.dailyLimit") }),
    ...(perPaymentLimitAtomic === undefined ? {} : { perPaymentLimitAtomic }),
    // A time that is past already ends the agent now.
    ...(body.expiresAt === undefined
      ? {}
      : { expiresAt: body.expiresAt === null ? null : readTime(body.expiresAt, "body.expiresAt") }),
    ...(body.status === undefined ? {} : { status: body.status }),
  };
}

const readPerPaymentLimit = (text: string | null | undefined): bigint | null | undefined =>
  typeof text === "string" ? readLimit(text, "body.perPaymentLimit") : text;

function onlyChanges(agent: AgentRow, wanted: AgentChange): AgentChange {
  const plain = (value: unknown) => (value instanceof Date ? value.getTime() : value);
  return Object.fromEntries(
    Object.entries(wanted).filter(
      ([key, value]) => plain(agent[key as keyof AgentChange]) !== plain(value),
    ),
  );
}

/** An agent's rules in wire form. */
export const rulesOnWire = (agent: AgentRow) => ({
  name: agent.name,
  dailyLimit: formatAtomic(agent.dailyLimitAtomic),
  perPaymentLimit:
    agent.perPaymentLimitAtomic === null ? null : formatAtomic(agent.perPaymentLimitAtomic),
  expiresAt: agent.expiresAt?.toISOString() ?? null,
  status: agent.status,
});

/** For the audit log: all rules, or only those of a change. */
function ruleFacts(agent: AgentRow, only?: AgentChange): Record<string, unknown> {
  const facts = rulesOnWire(agent);
  if (only === undefined) return facts;
  const changed = new Set(Object.keys(only).map((key) => key.replace(/Atomic$/, "")));
  return Object.fromEntries(Object.entries(facts).filter(([name]) => changed.has(name)));
}

/**
 * Ends an agent: its keys are revoked and it can only be read. Refused while money is in its wallet on any
 * network, or promised by it: an archived agent must not be able to lose or gain by itself.
 */
export async function archiveAgent(
  call: OwnerCall,
  agentId: string,
  chains: { read: ReadAllBalances; isConfigured: (networkId: string) => boolean },
): Promise<AgentRow> {
  // Read before the row is locked: no reservation waits for an RPC.
  const seen = await ownAgent(call, agentId);
  if (seen.status === "archived") return seen;
  if (!chains.isConfigured(seen.network))
    throw new ApiError("chain_unavailable", { detail: `${seen.network} is not configured here.` });
  const balances = await chains.read([seen.walletAddress]);
  const held = assertAllKnown(balances.get(seen.walletAddress) ?? []);
  return changeAgent(call, agentId, async (tx, agent, audit) => {
    const places = [];
    for (const { network, atomic, blockNumber } of held) {
      const { chainId } = network;
      const outstandingAtomic = await outstandingOf(tx, {
        agentId,
        chainId,
        balanceBlock: blockNumber,
      });
      if (atomic > 0n || outstandingAtomic > 0n)
        places.push({ network, atomic, outstandingAtomic });
    }
    if (places.length > 0) throw agentHasFunds(places);
    const revoked = await revokeApiKeys(tx, agentId, undefined);
    const archived = await updateAgent(tx, agentId, { status: "archived" });
    await audit({
      action: "agent.archived",
      before: { status: agent.status },
      after: { status: "archived", revokedKeys: revoked.map(({ id }) => id) },
    });
    return archived;
  });
}

/** Names the networks: the owner may not know that there is money on them. */
function agentHasFunds(
  places: readonly { network: NetworkFacts; atomic: bigint; outstandingAtomic: bigint }[],
): ApiError {
  const sum = (numbers: bigint[]) => formatAtomic(numbers.reduce((total, one) => total + one, 0n));
  const list = (read: (place: (typeof places)[number]) => bigint) =>
    places
      .filter((place) => read(place) > 0n)
      .map((place) => `${formatAtomic(read(place))} USDC on ${place.network.name}`)
      .join(" and ");
  const held = list(({ atomic }) => atomic);
  return new ApiError("agent_has_funds", {
    detail:
      held === ""
        ? `Payments of ${list(({ outstandingAtomic }) => outstandingAtomic)} are not final yet. Try again in a moment.`
        : `The wallet still holds ${held}. Withdraw it first.`,
    extra: {
      balance: sum(places.map(({ atomic }) => atomic)),
      outstanding: sum(places.map(({ outstandingAtomic }) => outstandingAtomic)),
      networks: places.map(({ network, atomic, outstandingAtomic }) => ({
        network: network.id,
        balance: formatAtomic(atomic),
        outstanding: formatAtomic(outstandingAtomic),
      })),
    },
  });
}
