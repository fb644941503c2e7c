// The mixed load of the soak: agents that spend and fetch, owners who withdraw and change rules, and third
// parties whose payments are posted to several replicas at once and again later.
import { setTimeout as sleep } from "node:timers/promises";
import type { Address, Hex } from "viem";
import { randomNonce } from "../helpers/engine.ts";
import {
  atomic,
  count,
  callUntilAnswered,
  usdc,
  wordOf,
  type Notes,
  type Outcome,
  type Reply,
  type RuleInForce,
  type SoakAgent,
  type SoakContext,
  type ReportedOutcome,
} from "./clients.ts";
import {
  thirdPartyCancels,
  thirdPartyPays,
  type LoadTargets,
  type Posted,
} from "./third-parties.ts";

const LOOPS = { agent: 3, thirdParty: 5, cancel: 1, withdrawal: 1, owner: 1 };
const WITHDRAWN_TO_OWNER = 3;
/** Owners retry for longer, because the test must know which rule is in force. */
const PATIENCE_OF_OWNERS_MS = 90_000;
/** The service stops working on an abandoned request within this time. */
const GHOST_MS = 150_000;
/**
 * Much of what a bad seller does is decided only when the authorization expires; reconciliation finds the
 * outcome.
 */
const FETCH_PATIENCE_MS = 10_000;

/** Resolves after the signal, when the last client has its response or has given up. */
export async function runLoad(
  context: SoakContext,
  targets: LoadTargets,
  posted: Posted[],
): Promise<void> {
  const { signal, random, agents } = context;
  const loop = async (work: () => Promise<unknown>, restMs: number): Promise<void> => {
    while (!signal.aborted) {
      await work();
      await sleep(random.int(restMs / 2, restMs * 1.5));
    }
  };
  const repeated = (times: number, work: () => Promise<unknown>, restMs: number) =>
    Array.from({ length: times }, () => loop(work, restMs));
  await Promise.all([
    ...agents.flatMap((agent) =>
      repeated(LOOPS.agent, () => agentPays(context, agent, targets), 500),
    ),
    ...repeated(LOOPS.thirdParty, () => thirdPartyPays(context, targets, posted), 400),
    ...repeated(LOOPS.cancel, () => thirdPartyCancels(context, targets, posted), 2_500),
    ...repeated(LOOPS.withdrawal, () => withdraw(context, random.pick(agents)), 1_500),
    ...agents.flatMap((agent) => repeated(LOOPS.owner, () => changeRules(context, agent), 4_000)),
  ]);
}

const bearer = (agent: SoakAgent, key?: string) => () => ({
  authorization: `Bearer ${agent.apiKey}`,
  ...(key !== undefined && { "idempotency-key": key }),
});

async function agentPays(
  context: SoakContext,
  agent: SoakAgent,
  targets: LoadTargets,
): Promise<void> {
  const { random, world } = context;
  const kind = random.next();
  if (kind < 0.6) return spend(context, agent, targets);
  const url =
    kind < 0.85
      ? random.pick(targets.sellerUrls)
      : `${random.pick(world.replicas).url}/api/arc-stats`;
  const startMs = performance.now();
  const reply = await callUntilAnswered(context, "/api/agents/x402-fetch", {
    headers: bearer(agent, randomNonce()),
    // Full, because the answer names the payee.
    body: { url, timeoutMs: 6_000, detail: "full" },
    patienceMs: FETCH_PATIENCE_MS,
  });
  const amountPaid = reply?.body["amountPaid"];
  recordOutcome(context.notes, reply, {
    kind: "x402",
    from: agent.wallet,
    ...(typeof amountPaid === "string" && amountPaid !== "0" && { amount: atomic(amountPaid) }),
    ...(typeof reply?.body["payTo"] === "string" && { to: reply.body["payTo"] as Address }),
    startMs,
  });
}

async function spend(context: SoakContext, agent: SoakAgent, targets: LoadTargets): Promise<void> {
  const { random } = context;
  const to = random.next() < 0.03 ? targets.unlistedPayee : random.pick(targets.payees);
  if (to === agent.wallet) return;
  const amount = context.nextAmount();
  const startMs = performance.now();
  const reply = await callUntilAnswered(context, "/api/agents/spend", {
    headers: bearer(agent, randomNonce()),
    body: { recipient: to, amount: usdc(amount) },
  });
  recordOutcome(context.notes, reply, { kind: "spend", from: agent.wallet, to, amount, startMs });
}

async function withdraw(context: SoakContext, agent: SoakAgent): Promise<void> {
  const { owner } = agent;
  const amount = context.nextAmount() * BigInt(WITHDRAWN_TO_OWNER);
  const headers = () => owner.headers;
  const path = `/api/agents/${agent.id}/withdrawals`;
  const prepared = await callUntilAnswered(context, `${path}/prepare`, {
    headers,
    body: { amount: usdc(amount) },
  });
  if (prepared?.status !== 200) return;
  const { order, typedData } = prepared.body as {
    order: Record<string, string>;
    typedData: {
      types: { Withdraw: { name: string; type: string }[] };
      domain: Record<string, unknown>;
      message: Record<string, string>;
    };
  };
  const signature = await owner.account.signTypedData({
    types: { Withdraw: typedData.types.Withdraw },
    primaryType: "Withdraw",
    domain: typedData.domain,
    message: typedData.message,
  });
  const startMs = performance.now();
  const key = { "idempotency-key": randomNonce() };
  const reply = await callUntilAnswered(context, path, {
    headers: () => ({ ...owner.headers, ...key }),
    body: { order, signature },
  });
  const to = owner.account.address;
  recordOutcome(context.notes, reply, {
    kind: "withdrawal",
    from: agent.wallet,
    to,
    amount,
    startMs,
  });
}

/** One change at a time, each retried until it has a response, so that the rule in force is known. */
async function changeRules(context: SoakContext, agent: SoakAgent): Promise<void> {
  const { random } = context;
  const kind = random.next();
  if (kind < 0.25) {
    await setRule(context, agent, { paused: true });
    await sleep(random.int(300, 2_000));
    return setRule(context, agent, { paused: false });
  }
  if (kind < 0.45) return rotateKey(context, agent);
  const me = await callUntilAnswered(context, "/api/agents/me", {
    method: "GET",
    headers: bearer(agent),
  });
  const limits = me?.body["limits"] as { spent: string; reserved: string } | undefined;
  if (!limits) return;
  const counted = atomic(limits.spent) + atomic(limits.reserved);
  // Limits below the spent amount, slightly above it, and far above it.
  const room = random.pick([-50_000n, 0n, 30_000n, 500_000n, 1_000_000n, 2_000_000n]);
  return setRule(context, agent, { limitAtomic: counted + room < 0n ? 0n : counted + room });
}

async function setRule(
  context: SoakContext,
  agent: SoakAgent,
  rule: Pick<RuleInForce, "limitAtomic" | "paused">,
): Promise<void> {
  const entry: RuleInForce = {
    ...rule,
    requestedMs: Date.now(),
    certainMs: Number.POSITIVE_INFINITY,
  };
  agent.rules.push(entry);
  const reply = await callUntilAnswered(context, `/api/agents/${agent.id}`, {
    method: "PATCH",
    headers: () => agent.owner.headers,
    body: {
      ...(rule.limitAtomic !== undefined && { dailyLimit: usdc(rule.limitAtomic) }),
      ...(rule.paused !== undefined && { status: rule.paused ? "paused" : "active" }),
    },
    patienceMs: PATIENCE_OF_OWNERS_MS,
    owner: agent.owner,
  });
  // An order that an earlier attempt with a lost response used has taken effect.
  if (reply?.status === 200 || reply?.body["code"] === "order_used") entry.certainMs = Date.now();
  // A delayed duplicate of an unanswered attempt could still undo a later change.
  if (reply?.unanswered !== 0) entry.ghostUntilMs = Date.now() + GHOST_MS;
}

async function rotateKey(context: SoakContext, agent: SoakAgent): Promise<void> {
  const headers = () => agent.owner.headers;
  const path = `/api/agents/${agent.id}/keys`;
  const rotated = await callUntilAnswered(context, `${path}/${agent.keyId}/rotate`, {
    headers,
    owner: agent.owner,
    body: { graceSeconds: context.random.pick([0, 5]) },
  });
  // The response with the new key may be lost; then another key is issued.
  const issued =
    rotated?.status === 201
      ? rotated
      : await callUntilAnswered(context, path, {
          headers,
          owner: agent.owner,
          body: {},
          patienceMs: PATIENCE_OF_OWNERS_MS,
        });
  if (issued?.status !== 201) return;
  count(context.notes, "keys rotated");
  agent.apiKey = String(issued.body["apiKey"]);
  agent.keyId = (issued.body["key"] as { id: string }).id;
}

/** Records the outcome of a call. */
function recordOutcome(
  notes: Notes,
  reply: Reply | undefined,
  about: {
    kind: ReportedOutcome["kind"];
    from: Address;
    to?: Address;
    amount?: bigint;
    startMs: number;
  },
): void {
  const body = reply?.body ?? {};
  const code = wordOf(body["code"]);
  const outcome = outcomeOf(reply, code);
  if (outcome === "paid") notes.lastPaidMs = performance.now();
  const paymentId = body["paymentId"];
  notes.reported.push({
    kind: about.kind,
    outcome,
    ...(code !== undefined && { code }),
    from: about.from,
    ...(about.to && { to: about.to }),
    ...(about.amount !== undefined && { amountAtomic: about.amount }),
    ...(typeof paymentId === "string" && { paymentId }),
    ...(typeof body["txHash"] === "string" && { txHash: body["txHash"] as Hex }),
    isClear: reply !== undefined && reply.unanswered === 0,
    tookMs: performance.now() - about.startMs,
  });
}

function outcomeOf(reply: Reply | undefined, code: string | undefined): Outcome {
  if (reply === undefined) return "unknown";
  const { status, body } = reply;
  // The problem `paid_upstream_failed` contains the transaction.
  if (typeof body["txHash"] === "string" && (status === 200 || code === "paid_upstream_failed"))
    return "paid";
  if (status === 200) return body["paid"] === false ? "free" : "unknown";
  if (code === "settlement_failed") return "failed";
  if (body["blocked"] === true || code === "insufficient_funds") return "denied";
  return "unknown";
}
