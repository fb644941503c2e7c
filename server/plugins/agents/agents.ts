import { getAddress, type Hex } from "viem";
import {
  insertAgent,
  outstandingOf,
  ownAgent,
  updateAgent,
  type AgentChange,
  type AgentRow,
  type NewAgent,
} from "./store.ts";
import { assertNotDenied } from "./denied-store.ts";
import { allowlistChange, entriesOf, storeAllowlist } from "./payees-store.ts";
import { createApiKey, insertApiKey, type ApiKeyRow, revokeApiKeys } from "../auth/api-keys.ts";
import { insertWallet } from "../custody/store.ts";
import type { CreateAgentBody, UpdateAgentBody } from "../../schemas/agents.ts";
import type { Custody } from "../custody/custody.ts";
import { assertNotStopped } from "../owners/store.ts";
import { newId } from "../../core/ids.ts";
import { formatAtomic } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import { policyOrder } from "../../core/orders.ts";
import type { Payee, RulesInForce } from "../../core/rules.ts";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import { SignatureNeeded, type Draft, type SignedOrder } from "../orders/orders.ts";
import { findOrder, type PreparedWallet } from "../orders/store.ts";
import { addedIn, writeAllowlist } from "./allowlist.ts";
import {
  changeAgent,
  withOwnerLock,
  payeeFacts,
  writeAudit,
  useOrderOrRequest,
  type LockedAgent,
  type OwnerCall,
} from "./change.ts";
import { refuseField } from "../../core/refuse-field.ts";
import {
  namesIn,
  onlyChanges,
  readAllowlist,
  readChange,
  rulesInForce,
  rulesOnWire,
} from "./rules.ts";
import { ApiError } from "../../errors.ts";
import { assertAllKnown, type ReadAllBalances } from "./balances.ts";
import { type ChannelMoney, readChannelMoney } from "./channel-money.ts";

interface Deps {
  custody: Custody;
  /** The configured networks; the first is the default. */
  networks: readonly [NetworkFacts, ...NetworkFacts[]];
}

/**
 * Creates an agent with its wallet, its allowlist and its first key, all or nothing. The first request prepares the
 * wallet, because the policy names it; the request with the owner's signature inserts the rows.
 */
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
  const wanted = readNewAgent(body);
  const { authorization } = call;
  const signed =
    authorization &&
    (await call.orders.verify(call.owner, "AgentPolicy", authorization, network.chainId));
  const work = () =>
    call.prisma.$transaction(async (tx) => {
      await assertNotStopped(tx, call.owner.id);
      await assertNotDenied(tx, call.owner.id, wanted.allowlist);
      const { expiresAtSeconds: endsAt } = wanted.rules;
      if (endsAt != null && Number(endsAt) * 1000 <= (await databaseNow(tx)).getTime())
        throw refuseField("validation_failed", "body.expiresAt", "must be in the future");
      const prepared = signed && (await preparedFor(tx, call, signed));
      const { id, wallet } = prepared ?? (await prepareWallet(custody, call.owner));
      const rules = rulesInForce({ ...wanted.rules, status: "active" }, wanted.allowlist);
      const draft: Draft<"AgentPolicy"> = {
        kind: "AgentPolicy",
        agentId: id,
        chainId: network.chainId,
        version: 1,
        wallet,
        build: (single) =>
          policyOrder({
            agentId: id,
            walletAddress: wallet.address,
            version: 1,
            name: wanted.rules.name,
            rules,
            ...single,
          }),
      };
      // The prepared wallet was replaced by newer ones or deleted, so the signed policy names a wallet that no longer
      // exists.
      if (signed && !prepared) throw new SignatureNeeded(draft, "policy_changed");
      await useOrderOrRequest(tx, call, signed, draft);
      if (!signed) throw new Error("an agent needs its owner's signature");
      const policy = { signed, rules };
      return insertAll(tx, call, { id, network, wallet, policy, ...wanted });
    });
  return call.orders.requestingSignature(call.owner, () => withOwnerLock(call, signed, work));
}

type NewAgentRules = Omit<NewAgent, "id" | "ownerId" | "network" | "walletAddress">;

function readNewAgent(body: CreateAgentBody): { rules: NewAgentRules; allowlist: Payee[] } {
  const { allowlist, network: _network, authorization: _authorization, ...rest } = body;
  const { status: _status, ...rules } = readChange(rest);
  return { rules: { name: "", ...rules }, allowlist: readAllowlist(allowlist ?? []) };
}

async function prepareWallet(
  custody: Custody,
  owner: OwnerCall["owner"],
): Promise<{ id: string; wallet: PreparedWallet }> {
  const id = newId("agt");
  const { address, sealed } = await custody.createWallet(id, owner);
  const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64");
  const { kid, wrappedDataKey, ciphertext } = sealed;
  return {
    id,
    wallet: {
      address,
      kid,
      wrappedDataKey: base64(wrappedDataKey),
      ciphertext: base64(ciphertext),
    },
  };
}

async function preparedFor(
  tx: Db,
  { owner }: OwnerCall,
  { order }: SignedOrder<"AgentPolicy">,
): Promise<{ id: string; wallet: PreparedWallet } | undefined> {
  const found = await findOrder(tx, order.nonce as Hex);
  if (found?.isUsed === true) throw new ApiError("order_used");
  if (!found?.wallet || found.ownerId !== owner.id) return undefined;
  return { id: found.agentId, wallet: found.wallet };
}

async function insertAll(
  tx: Db,
  call: OwnerCall,
  args: {
    id: string;
    network: NetworkFacts;
    wallet: PreparedWallet;
    policy: { signed: SignedOrder<"AgentPolicy">; rules: RulesInForce };
    rules: NewAgentRules;
    allowlist: readonly Payee[];
  },
): Promise<{ agent: AgentRow; apiKey: string; key: ApiKeyRow }> {
  const { id, wallet, allowlist } = args;
  const agent = await insertAgent(tx, {
    id,
    ownerId: call.owner.id,
    network: args.network.id,
    walletAddress: wallet.address,
    ...args.rules,
  });
  const bytes = (text: string) => Buffer.from(text, "base64");
  const { address, kid } = wallet;
  const prepared = {
    kid,
    wrappedDataKey: bytes(wallet.wrappedDataKey),
    ciphertext: bytes(wallet.ciphertext),
  };
  const adopted = await call.custody.adopt(
    { agentId: id, address, sealed: prepared, owner: call.owner },
    args.policy,
  );
  await insertWallet(tx, { agentId: id, address, ...adopted });
  const listed = { before: [], after: [...allowlist] };
  await storeAllowlist(tx, id, listed);
  const { apiKey, ...keyFacts } = createApiKey(call.cell);
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
    ...payeeFacts(listed, args.policy.signed.digest).after,
    key: { id: key.id, prefix: key.prefix, last4: key.last4 },
  };
  await writeAudit(tx, call, id, { action: "agent.created", before: null, after });
  return { agent, apiKey, key };
}

/** Changes rules. Only real differences are written, and recorded in the audit with the values before and after. */
export async function editAgent(
  call: OwnerCall,
  agentId: string,
  body: UpdateAgentBody,
): Promise<AgentRow> {
  const { authorization: _authorization, allowlist, ...rest } = body;
  const wanted = readChange(rest);
  const listed = allowlist && readAllowlist(allowlist);
  return changeAgent(call, agentId, async (held) => {
    const change = onlyChanges(held.agent, wanted);
    const next = { ...held.agent, ...change };
    const before = await entriesOf(held.tx, agentId);
    const setsStatus = change.status !== undefined;
    const listing = listed && allowlistChange(before, listed);
    if (listing) await assertNotDenied(held.tx, held.agent.ownerId, addedIn(listing));
    await held.permit(before, rulesInForce(next, listed ?? before), next.name, setsStatus);
    if (listing) await writeAllowlist(held, listing);
    return writeRules(held, change);
  });
}

async function writeRules(
  { tx, agent, audit }: Pick<LockedAgent, "tx" | "agent" | "audit">,
  change: AgentChange,
): Promise<AgentRow> {
  if (Object.keys(change).length === 0) return agent;
  const updated = await updateAgent(tx, agent.id, change);
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
}

/** For the audit log: all rules, or only the changed ones. */
function ruleFacts(agent: AgentRow, only?: AgentChange): Record<string, unknown> {
  const facts = rulesOnWire(agent);
  if (only === undefined) return facts;
  const changed = namesIn(only);
  return Object.fromEntries(Object.entries(facts).filter(([name]) => changed.has(name)));
}

/**
 * Archives an agent: its keys are revoked and it becomes read-only. Refused while its wallet has money on any network,
 * payment channels that are not closed, or outstanding payments: the balance of an archived agent must not change.
 */
export async function archiveAgent(
  call: OwnerCall,
  agentId: string,
  chains: { read: ReadAllBalances; isConfigured: (networkId: string) => boolean },
): Promise<AgentRow> {
  // Read before the row is locked, so that no reservation waits for an RPC.
  const seen = await ownAgent(call.prisma, call.owner, agentId);
  if (seen.status === "archived") return seen;
  if (!chains.isConfigured(seen.network))
    throw new ApiError("chain_unavailable", { detail: `${seen.network} is not configured here.` });
  const balances = await chains.read([seen.walletAddress]);
  const held = assertAllKnown(balances.get(seen.walletAddress) ?? []);
  return changeAgent(call, agentId, async ({ tx, agent, audit, permit }) => {
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
    const inChannels = await readChannelMoney(tx, agentId);
    if (inChannels.length > 0) throw channelsHaveFunds(inChannels);
    const next = { ...agent, status: "archived" as const };
    const payees = await entriesOf(tx, agentId);
    await permit(payees, rulesInForce(next, payees), agent.name, true);
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

function channelsHaveFunds(inChannels: readonly ChannelMoney[]): ApiError {
  const sum = formatAtomic(inChannels.reduce((total, one) => total + one.balanceAtomic, 0n));
  return new ApiError("agent_has_funds", {
    detail: `The agent still has ${sum} USDC in payment channels. Close them, and wait until they are closed.`,
    extra: {
      balance: "0",
      outstanding: "0",
      inChannels: sum,
      channels: inChannels.reduce((total, { channels }) => total + channels, 0),
    },
  });
}

/** Names the networks, because the owner may not know that there is money on them. */
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
        : `The wallet still has ${held}. Withdraw it first.`,
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
