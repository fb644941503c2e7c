// The clients of the soak: they retry at other replicas with the same key until they get an outcome, and
// record the outcomes.
import { setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance } from "fastify";
import type { Address, Hex } from "viem";
import { createAgent, signIn, signOrder, type SignedInOwner } from "../helpers/owner.ts";
import { COME_AGAIN } from "../helpers/come-again.ts";
import type { Random } from "../helpers/random.ts";
import type { World } from "./world.ts";

/**
 * `unknown`: no response had the outcome, so reconciliation must find one of the two, not both. `repeat`:
 * another request gets the outcome. `free`: nothing was paid.
 */
export type Outcome = "paid" | "denied" | "failed" | "unknown" | "repeat" | "free";

/** The outcome of one payment as a client received it. */
export interface ReportedOutcome {
  kind: "spend" | "x402" | "withdrawal" | "facilitated";
  outcome: Outcome;
  code?: string;
  from: Address;
  to?: Address;
  amountAtomic?: bigint;
  /** Only where the client signed the authorization itself. */
  nonce?: Hex;
  paymentId?: string;
  txHash?: Hex;
  /** No earlier attempt stayed without a response, so none can still be in progress. */
  isClear: boolean;
  tookMs: number;
}

/** A rule of an agent, with the times between which it may have been in force, by this machine's clock. */
export interface RuleInForce {
  limitAtomic?: bigint;
  paused?: boolean;
  /** When the change was requested. */
  requestedMs: number;
  /** From this time on no earlier rule was in force. */
  certainMs: number;
  /** Until this time an unanswered attempt of the change may have taken effect again. */
  ghostUntilMs?: number;
}

export interface SoakAgent {
  id: string;
  wallet: Address;
  apiKey: string;
  keyId: string;
  owner: SignedInOwner;
  fundsAtomic: bigint;
  rules: RuleInForce[];
}

export interface Notes {
  reported: ReportedOutcome[];
  /** Other counts for the report. */
  counts: Map<string, number>;
  /** Violations that were seen during the load. */
  faults: string[];
  /** When a client last received a successful payment. */
  lastPaidMs: number;
}

export interface Reply {
  status: number;
  body: Record<string, unknown>;
  /** Earlier attempts without a response, or that may still be in progress. */
  unanswered: number;
}

export interface SoakContext {
  world: World;
  random: Random;
  notes: Notes;
  agents: SoakAgent[];
  /**
   * No two payments of the soak to the same payee have the same amount, so that a payment can be found on
   * chain by its amount.
   */
  nextAmount(): bigint;
  signal: AbortSignal;
}

export const count = (notes: Notes, what: string): void =>
  void notes.counts.set(what, (notes.counts.get(what) ?? 0) + 1);

export const wordOf = (value: unknown): string | undefined =>
  typeof value === "string" ? value : undefined;

const CALL_TIMEOUT_MS = 30_000;
/** After this time only reconciliation finds the outcome. */
const PATIENCE_MS = 30_000;
const JSON_TYPE = { "content-type": "application/json" };

export async function callOnce(
  url: string,
  options: {
    method?: string;
    headers?: Record<string, string>;
    body?: unknown;
    timeoutMs?: number;
  } = {},
): Promise<{ status: number; body: Record<string, unknown> } | undefined> {
  const { method = "POST", headers = {}, body, timeoutMs = CALL_TIMEOUT_MS } = options;
  try {
    const answer = await fetch(url, {
      method,
      headers: { ...JSON_TYPE, ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(timeoutMs),
    });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  } catch {
    return undefined; // Interrupted, refused or timed out: no outcome.
  }
}

/**
 * Sends the request to one replica after the other until one returns an outcome; undefined after the time
 * limit.
 */
export async function callUntilAnswered(
  context: Pick<SoakContext, "world" | "random" | "notes">,
  path: string,
  options: {
    method?: string;
    headers: () => Record<string, string>;
    body?: unknown;
    patienceMs?: number;
    /** The owner whose wallet signs what the response requires. */
    owner?: SignedInOwner;
  },
): Promise<Reply | undefined> {
  const { world, random, notes } = context;
  let authorization: Awaited<ReturnType<typeof signOrder>>;
  const untilMs = performance.now() + (options.patienceMs ?? PATIENCE_MS);
  let at = random.int(0, world.replicas.length - 1);
  for (let unanswered = 0; performance.now() < untilMs; at += 1) {
    const replica = world.replicas[at % world.replicas.length];
    if (replica === undefined) throw new Error("no replicas");
    const answer = await callOnce(`${replica.url}${path}`, {
      ...options,
      body: authorization ? { ...(options.body as object), authorization } : options.body,
      headers: options.headers(),
    });
    const signedOrder =
      options.owner && answer && (await signOrder(options.owner.account, answer.body));
    if (signedOrder) {
      authorization = signedOrder;
      continue;
    }
    if (answer) {
      const code = wordOf(answer.body["code"]) ?? "";
      if (answer.status === 500) count(notes, "answers 500");
      // The key was rotated during the request; the next attempt uses the new one.
      const isStale = answer.status === 401;
      if (!isStale && !COME_AGAIN.has(code)) return { ...answer, unanswered };
      if (code === "payment_status_unknown" || code === "idempotency_in_progress") unanswered += 1;
      else if (answer.status === 500) unanswered += 1;
    } else unanswered += 1;
    await sleep(random.int(200, 800));
  }
  return undefined;
}

/** A replacement for `inject` in the owner helpers of the other tests: over HTTP, with retries. */
function overHttp(context: Pick<SoakContext, "world" | "random" | "notes">): FastifyInstance {
  const inject = async (wanted: {
    method: string;
    url: string;
    headers?: Record<string, string>;
    payload?: string;
  }) => {
    const replica = context.random.pick(context.world.replicas);
    const answer = await fetch(`${replica.url}${wanted.url}`, {
      method: wanted.method,
      ...(wanted.headers && { headers: wanted.headers }),
      ...(wanted.payload !== undefined && { body: wanted.payload }),
      signal: AbortSignal.timeout(CALL_TIMEOUT_MS),
    });
    const body = await answer.text();
    return {
      statusCode: answer.status,
      body,
      json: () => JSON.parse(body) as unknown,
      headers: { "set-cookie": answer.headers.getSetCookie() },
    };
  };
  return { inject } as unknown as FastifyInstance;
}

export async function openOwner(
  context: Pick<SoakContext, "world" | "random" | "notes">,
): Promise<SignedInOwner> {
  const { world } = context;
  const config = { publicUrl: world.publicUrl, networks: [{ chainId: world.chain.chainId }] };
  return signIn({ app: overHttp(context), config } as never);
}

export async function openAgent(
  context: Pick<SoakContext, "world" | "random" | "notes">,
  owner: SignedInOwner,
  options: {
    allowlist: Address[];
    limitAtomic: bigint;
    fundsAtomic: bigint;
    /** Other rules. */
    rules?: Record<string, unknown>;
  },
): Promise<SoakAgent> {
  const requestedMs = Date.now();
  const made = await createAgent({ app: overHttp(context) }, owner, {
    allowlist: options.allowlist,
    dailyLimit: usdc(options.limitAtomic),
    ...options.rules,
  });
  const { limitAtomic, fundsAtomic } = options;
  return {
    id: made.id,
    wallet: made.walletAddress,
    apiKey: made.apiKey,
    keyId: made.keyId,
    owner,
    fundsAtomic,
    rules: [{ limitAtomic, paused: false, requestedMs, certainMs: requestedMs }],
  };
}

export const usdc = (atomic: bigint): string =>
  `${atomic / 1_000_000n}.${String(atomic % 1_000_000n).padStart(6, "0")}`;

export const atomic = (text: string): bigint => {
  const [whole = "0", part = ""] = text.split(".");
  return BigInt(whole) * 1_000_000n + BigInt(part.padEnd(6, "0"));
};
