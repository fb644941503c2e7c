/** Agents' payments: spends, and what agents and their owners read about payments. */
import { randomUUID } from "node:crypto";
import fp from "fastify-plugin";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { stringifyExact } from "../../core/exact-json.ts";
import { formatGas } from "../../core/gas.ts";
import { ApiError } from "../../errors.ts";
import { tracedAs } from "../../infra/tracing.ts";
import type { Overview } from "../../schemas/overview.ts";
import type { AgentSelf } from "../../schemas/payments.ts";
import { listAllowlists } from "../agents/payees-store.ts";
import {
  isReservationGone,
  markUnknownInGroups,
  staleReservations,
  voidUnsigned,
} from "../guardrails/store.ts";
import { hashBody, readIdempotencyKey, type IdempotencyRef } from "../guardrails/types.ts";
import { acceptInGroups } from "../settlement/accept.ts";
import { AgentReserve, Spend, type PayingBody } from "./agent-payments.ts";
import { PaymentHistory } from "./history.ts";
import routes from "./routes.ts";
import {
  completeKey,
  findKey,
  findPaidAnswer,
  readResponse,
  insertKey,
  noteOnKey,
  releaseKey,
  Idempotency,
  JOINED,
  type Answer,
} from "./idempotency.ts";
import { INTERMEDIARY, Joining, type Intermediary } from "./joining.ts";
import { cancelCall, findEarlier, forgetDelivered, markDelivered } from "./joining-store.ts";
import {
  blockedLastDay,
  overviewAgents,
  paymentBuckets,
  readOverview,
  findSelf,
  presentSelf,
} from "./overview.ts";
import { PayFlow, type SigningFault } from "./pay.ts";
import { findPayment, listPayments } from "./store.ts";

/** The route name under which the idempotency keys of fetches are stored. */
export const FETCH_ROUTE = "POST /api/agents/x402-fetch";

type PaidAnswer = ReturnType<typeof findPaidAnswer>;

declare module "fastify" {
  interface FastifyInstance {
    /** The common flow of spend, fetch and withdrawal. */
    payments: PayFlow;
    /** Decides and reserves a spend or a fetch before that flow signs it. */
    agentReserve: AgentReserve;
    spend: Spend;
    paymentHistory: PaymentHistory;
    /** An agent's view of itself (also over MCP). */
    agentSelf(agent: { id: string; apiKeyId: string }): Promise<AgentSelf>;
    /** An owner's totals and time series. */
    overview(args: { ownerId: string; agentId: string | undefined }): Promise<Overview>;
    /** The CAIP-2 id of a chain in the ledger, also of one that is no longer configured. */
    networkOf(chainId: number): string;
    /** The remaining part of an agent's daily limit, in atomic units. */
    remainingOf(agentId: string): Promise<bigint>;
    /** Calls without an Idempotency-Key, and which earlier call each one joins. */
    joining: Joining;
    /** The client no longer waits for a call: stops it unless it is signed, in whichever process it runs. */
    cancelCall(agentId: string, call: string): Promise<void>;
    /** The stored response of an agent's paid fetch, by its key, as long as it is kept. */
    storedFetch(agentId: string, key: string, room: () => Promise<void>): PaidAnswer;
    /**
     * Callers for which this process calls its own API, each under an unguessable name that is valid for one
     * call.
     */
    intermediaries: Map<string, Intermediary>;
    /** Set only by tests, which stop the process at a named point. */
    paymentFaults: { at?: (point: SigningFault) => Promise<void> };
  }
  interface FastifyRequest {
    /** The idempotency reference of this request; undefined without an Idempotency-Key. */
    idempotencyRef(args: {
      subjectId: string;
      route: string;
      body: unknown;
    }): IdempotencyRef | undefined;
    /**
     * The same for an agent's call that may pay. A call without a key gets a generated one, and joins an
     * earlier identical call.
     */
    payingRef(args: {
      subjectId: string;
      route: string;
      body: PayingBody;
      reply: FastifyReply;
    }): Promise<IdempotencyRef | undefined>;
  }
  interface FastifyReply {
    /** Sends a response, marked when it is a stored one that is replayed. */
    sendAnswer(answer: Answer): FastifyReply;
  }
}

export default fp(
  async (app) => {
    decoratePaying(app);
    decorateKeys(app);
    decorateReading(app);
    await app.register(housekeeping);
    await app.register(routes);
  },
  { name: "payments" },
);

function decoratePaying(app: FastifyInstance): void {
  const { pool, settlement } = app;
  const faults: FastifyInstance["paymentFaults"] = {};
  const agentReserve = new AgentReserve({
    settlement: {
      assertAvailable: async (chainId, options) => {
        await app.reconciliation.assertCurrent(chainId);
        await settlement.assertAvailable(chainId, options);
      },
      gasHold: (chainId) => settlement.gasHold(chainId),
    },
    minPaymentAtomic: app.config.minPaymentAtomic,
    balances: app.chainReads,
    isEnded: (chainId, ref) => app.chainReads.isEnded(chainId, ref),
    guardrails: app.guardrails,
    approvals: app.approvals,
    networkOf: (chainId) => {
      const network = app.chains.byChainId(chainId)?.network;
      if (!network) throw new Error(`network eip155:${chainId} is not configured`);
      return network;
    },
  });
  const joining = new Joining(
    {
      earlier: (ref) => findEarlier(pool, ref),
      markDelivered: markDelivered(pool),
    },
    (error) => app.log.warn({ err: error }, "a response was returned but not recorded"),
  );
  app.decorate("joining", joining);
  app.decorate("cancelCall", (agentId, call) =>
    app.withAgentLock(agentId, () => cancelCall(pool, agentId, call)),
  );
  app.decorate("intermediaries", new Map<string, Intermediary>());
  app.decorate("storedFetch", (subjectId, key, room) =>
    findPaidAnswer(pool, { subjectId, route: FETCH_ROUTE, key, bodyHash: Buffer.alloc(32), room }),
  );
  app.addHook("onClose", () => joining.end());
  const flow = new PayFlow({
    settlement,
    joining,
    idempotency: new Idempotency({
      find: (ref) => findKey(pool, ref),
      readResponse: (ref) => readResponse(pool, ref),
      complete: (ref, answer) => completeKey(pool, ref, answer),
      note: (ref, storedNote) => noteOnKey(pool, ref, storedNote),
      insert: (ref) => insertKey(pool, ref),
      release: (ref) => releaseKey(pool, ref),
    }),
    allow: (payment) => app.allowances.cover(payment),
    sign: tracedAs("custody.sign", (agentId, authorization, cover) =>
      app.custody.signAuthorization(agentId, authorization, cover),
    ),
    accept: acceptInGroups({
      acceptAll: (requests) => settlement.acceptAll(pool, requests),
      find: (key) => settlement.findByAuthorization(key),
    }),
    isReservationGone,
    store: {
      find: (key) => findPayment(pool, key),
      markUnknown: markUnknownInGroups(pool),
      voidUnsigned: (args) => app.withAgentLock(args.agentId, () => voidUnsigned(pool, args)),
      staleReservations: (args) => staleReservations(pool, args),
    },
    settleWaitMs: app.config.settleWaitMs,
    fault: async (point) => faults.at?.(point),
    log: app.log,
  });
  app.decorate("paymentFaults", faults);
  app.decorate("agentReserve", agentReserve);
  app.decorate("payments", flow);
  app.decorate(
    "networkOf",
    (chainId: number) => app.chains.byChainId(chainId)?.network.id ?? `eip155:${chainId}`,
  );
  app.decorate(
    "remainingOf",
    async (agentId: string) => (await app.limits.of(agentId))?.remainingAtomic ?? 0n,
  );
  app.decorate(
    "spend",
    new Spend({
      flow,
      agentReserve,
      remainingOf: (agentId) => app.remainingOf(agentId),
      networkOf: (chainId) => app.networkOf(chainId),
    }),
  );
}

function decorateKeys(app: FastifyInstance): void {
  app.decorateRequest("idempotencyRef", function idempotencyRef(this: FastifyRequest, args) {
    const key = readIdempotencyKey(this.headers["idempotency-key"]);
    if (key === undefined) return undefined;
    const { subjectId, route } = args;
    return { subjectId, route, key, bodyHash: hashBody(route, args.body) };
  });
  app.decorateRequest("payingRef", async function payingRef(this: FastifyRequest, args) {
    const { subjectId, route, reply } = args;
    const { requestApproval, reason: _reason, dryRun, ...body } = args.body;
    const between = app.intermediaries.get(String(this.headers[INTERMEDIARY]));
    const cancelable = between && { call: between.call, isCanceled: between.isCanceled };
    const own = this.idempotencyRef({ subjectId, route, body });
    if (own) return { ...own, ...cancelable };
    if (dryRun === true) return undefined;
    const bodyHash = hashBody(route, body);
    const approval = requestApproval && (await app.approvals.keyFor(subjectId, bodyHash));
    const key = approval ? approval.key : ownKey();
    const ref: IdempotencyRef = { subjectId, route, bodyHash, key, ...cancelable };
    const cameAtMs = between?.cameAtMs ?? performance.now() - reply.elapsedTime;
    const joins = { cameAtMs, isGone: between?.isGone ?? (() => reply.raw.destroyed) };
    if (approval && approval.isKnown) {
      // Unless the call was paid without the approval before, and that response was not delivered.
      if ((await app.joining.earlier(ref, joins)) === undefined) return ref;
      // The approval's key is only for the approved payment.
      ref.key = ownKey();
    }
    ref.joins = joins;
    if (between) between.ref = ref;
    // "finish": the whole response was written to the connection. It does not fire if the connection broke
    // before.
    else reply.raw.once("finish", () => app.joining.noteDelivered(ref));
    return ref;
  });
  app.decorateReply("sendAnswer", function sendAnswer(this: FastifyReply, answer: Answer) {
    if (answer.replayed) this.header("idempotent-replayed", "true");
    // Sent as text: no serializer may round a number, and a replayed response has the same bytes.
    const { statusCode, body, text, joined } = answer;
    return this.header("cache-control", "no-store")
      .type("application/json; charset=utf-8")
      .code(statusCode)
      .send(joined ? stringifyExact({ ...JOINED, ...body }) : (text ?? stringifyExact(body)));
  });
}

function decorateReading(app: FastifyInstance): void {
  app.decorate(
    "paymentHistory",
    new PaymentHistory({
      list: (filter) => listPayments(app.prisma, filter),
      find: (key) => findPayment(app.pool, key),
      networkOf: (chainId) => app.networkOf(chainId),
    }),
  );
  app.decorate("overview", (args) =>
    readOverview(
      {
        agents: (query) => overviewAgents(app.prisma, query),
        limits: (ids) => app.limits.ofMany(ids),
        buckets: (query) => paymentBuckets(app.prisma, query),
        blocked: (ids) => blockedLastDay(app.prisma, ids),
        balances: app.walletBalances,
        ledger: (ownerId) => app.reconciliation.stateFor(ownerId),
        gas: (ownerId) => gasBudgetsOf(app, ownerId),
        networks: app.chains.all.map(({ network }) => network.id),
      },
      args,
    ),
  );
  app.decorate("agentSelf", async (agent: { id: string; apiKeyId: string }) => {
    const row = await findSelf(app.prisma, { agentId: agent.id, apiKeyId: agent.apiKeyId });
    if (!row) throw new ApiError("not_found");
    const [limits, allowlists, wallets] = await Promise.all([
      app.limits.of(agent.id, { payees: true }),
      listAllowlists(app.prisma, [agent.id]),
      app.agentWallets([row]),
    ]);
    if (!limits) throw new ApiError("not_found");
    const { network } = app.chains.byNetwork(row.network) ?? app.chains.default;
    const allowlist = allowlists.get(agent.id) ?? [];
    return presentSelf(row, { limits, allowlist, wallets, asset: network.usdc.address });
  });
}

/** The key of a call that came without one. */
const ownKey = (): string => `auto-${randomUUID()}`;

const GAS_ACCOUNTS = { owner: "payments", withdrawer: "withdrawals" } as const;

async function gasBudgetsOf(app: FastifyInstance, ownerId: string): Promise<Overview["gas"]> {
  const names = Object.keys(GAS_ACCOUNTS) as (keyof typeof GAS_ACCOUNTS)[];
  const accounts = names.map((name) => `${name}:${ownerId}`);
  const budgets = await Promise.all(
    app.chains.all.map(async ({ network }) => {
      const known = await app.settlement.gasAccounts(network.chainId, accounts);
      return names.flatMap((name) => {
        const budget = known.find(({ account }) => account === `${name}:${ownerId}`);
        if (!budget) return [];
        const { perDay, left, held, used } = budget;
        return {
          network: network.id,
          for: GAS_ACCOUNTS[name],
          perDay: formatGas(perDay),
          left: formatGas(left),
          held: formatGas(held),
          used: formatGas(used),
        };
      });
    }),
  );
  return budgets.flat();
}

/** Longer than any request could still take to sign (its transaction would be rejected anyway). */
const UNSIGNED_SAFE_SECONDS = 60;

/**
 * Scheduled cleanup: releases calls whose process died, and deletes responses that were kept only until they
 * were delivered.
 */
const housekeeping = fp(
  async (app) => {
    app.jobs.addTask(
      "sweep-unsigned",
      async () =>
        void (await app.payments.sweepUnsigned({ olderThanSeconds: UNSIGNED_SAFE_SECONDS })),
      { cron: "* * * * *", atStart: true },
    );
    app.jobs.addTask("forget-told-answers", () => forgetDelivered(app.pool), {
      cron: "* * * * *",
    });
  },
  { name: "housekeeping" },
);
