/** Agents' payments: spends, and what agents and their owners read about payments. */
import { setTimeout as sleep } from "node:timers/promises";
import fp from "fastify-plugin";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { stringifyExact } from "../../core/exact-json.ts";
import { formatGas } from "../../core/gas.ts";
import { ApiError } from "../../errors.ts";
import { tracedAs } from "../../infra/tracing.ts";
import type { Overview } from "../../schemas/overview.ts";
import type { AgentSelf } from "../../schemas/payments.ts";
import { deniedOnList } from "../agents/denied-store.ts";
import { listAllowlists } from "../agents/payees-store.ts";
import {
  isReservationGone,
  markUnknownInGroups,
  staleReservations,
  voidUnsigned,
} from "../guardrails/store.ts";
import { hashBody, readIdempotencyKey, type IdempotencyRef } from "../guardrails/types.ts";
import { acceptInGroups } from "../settlement/accept.ts";
import { PaymentHistory } from "./history.ts";
import {
  Calls,
  findKeyOfPayment,
  findPaidAnswer,
  JOINED,
  KeyStore,
  type Answer,
  type PaymentKey,
} from "./idempotency.ts";
import { cancelCall, endedBy, forgetDelivered, LostResponses } from "./lost-responses.ts";
import {
  blockedLastDay,
  overviewAgents,
  paymentBuckets,
  readOverview,
  findSelf,
  presentSelf,
} from "./overview.ts";
import { AgentReserve, type PayingBody } from "./reserve.ts";
import routes from "./routes.ts";
import { agentsOf, readPaymentSearch, searchPayments, withinTime } from "./search.ts";
import { Spend } from "./spend.ts";
import { PaymentSteps, type PaymentFault } from "./steps.ts";
import { findPayment, listPayments } from "./store.ts";

/** The route name under which the idempotency keys of fetches are stored. */
export const FETCH_ROUTE = "POST /api/agents/x402-fetch";

type PaidAnswer = ReturnType<typeof findPaidAnswer>;

declare module "fastify" {
  interface FastifyInstance {
    /** Requests that move money, found again by their idempotency keys. */
    calls: Calls;
    /** Signs what was reserved, gives it to the engine, and waits for its outcome. */
    payments: PaymentSteps;
    /** Decides on a spend or a fetch and reserves it. */
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
    lostResponses: LostResponses;
    /** The client no longer waits for a call: stops it unless it is signed, in whichever process it runs. */
    cancelCall(agentId: string, call: string): Promise<void>;
    /** The stored response of an agent's paid fetch, by its key, as long as it is kept. */
    storedFetch(agentId: string, key: string, room: () => Promise<void>): PaidAnswer;
    /** The key of the fetch that made this payment, while it is kept. */
    keyOfFetch(payment: PaymentKey): Promise<string | undefined>;
    /** Set only by tests, which stop the process at a named point. */
    paymentFaults: { at?: (point: PaymentFault) => Promise<void> };
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
    screening: app.screening,
    networkOf: (chainId) => {
      const network = app.chains.byChainId(chainId)?.network;
      if (!network) throw new Error(`network eip155:${chainId} is not configured`);
      return network;
    },
  });
  const lostResponses = new LostResponses({
    pool,
    approvals: app.approvals,
    warn: (error) => app.log.warn({ err: error }, "a response was returned but not recorded"),
    nowMs: () => performance.now(),
  });
  app.decorate("lostResponses", lostResponses);
  app.addHook("onClose", () => lostResponses.end());
  app.decorate("cancelCall", (agentId, call) =>
    app.withAgentLock(agentId, () => cancelCall(pool, agentId, call)),
  );
  app.decorate("storedFetch", (subjectId, key, room) =>
    findPaidAnswer(pool, { subjectId, route: FETCH_ROUTE, key, bodyHash: Buffer.alloc(32), room }),
  );
  app.decorate("keyOfFetch", (payment: PaymentKey) =>
    findKeyOfPayment(pool, { ...payment, route: FETCH_ROUTE }),
  );
  const payments = {
    find: (key: PaymentKey) => findPayment(pool, key),
    markUnknown: markUnknownInGroups(pool),
    voidUnsigned: (args: Parameters<typeof voidUnsigned>[1]) =>
      app.withAgentLock(args.agentId, () => voidUnsigned(pool, args)),
    staleReservations: (args: Parameters<typeof staleReservations>[1]) =>
      staleReservations(pool, args),
  };
  const calls = new Calls({
    payments,
    keys: new KeyStore(pool),
    earlierCall: (ref, joins) => lostResponses.earlierCall(ref, joins),
    sleep: (ms) => sleep(ms),
  });
  const steps = new PaymentSteps({
    settlement,
    payments,
    allow: (payment) => app.allowances.cover(payment),
    sign: tracedAs("custody.sign", (agentId, authorization, cover) =>
      app.custody.signAuthorization(agentId, authorization, cover),
    ),
    accept: acceptInGroups({
      acceptAll: (requests) => settlement.acceptAll(pool, requests),
      find: (key) => settlement.findByAuthorization(key),
    }),
    isReservationGone,
    settleWaitMs: app.config.settleWaitMs,
    fault: async (point) => faults.at?.(point),
    log: app.log,
  });
  app.decorate("paymentFaults", faults);
  app.decorate("agentReserve", agentReserve);
  app.decorate("calls", calls);
  app.decorate("payments", steps);
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
      calls,
      agentReserve,
      steps,
      remainingOf: (agentId) => app.remainingOf(agentId),
      networkOf: (chainId) => app.networkOf(chainId),
      settleWaitMs: app.config.settleWaitMs,
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
    const { requestApproval: _, reason: _reason, dryRun: _dryRun, ...body } = args.body;
    const own = this.idempotencyRef({ ...args, body });
    return own
      ? { ...own, ...endedBy(app.lostResponses.intermediaryOf(this), args.reply) }
      : app.lostResponses.refFor(args);
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
      list: (filter) => app.reading((prisma) => listPayments(prisma, filter)),
      find: (key) => findPayment(app.pool, key),
      search: async (ownerId, query) => {
        const search = readPaymentSearch(query);
        const agentIds = await agentsOf(app.prisma, { ownerId, agentId: search.agentId });
        return app.reading((prisma) =>
          withinTime(prisma, app.config.timings.searchMs, (tx) =>
            searchPayments(tx, agentIds, search),
          ),
        );
      },
      networkOf: (chainId) => app.networkOf(chainId),
    }),
  );
  app.decorate("overview", (args) =>
    readOverview(
      {
        agents: (query) => overviewAgents(app.prisma, query),
        limits: (ids) => app.limits.ofMany(ids),
        buckets: (query) => app.reading((prisma) => paymentBuckets(prisma, query)),
        blocked: (ids) => app.reading((prisma) => blockedLastDay(prisma, ids)),
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
    const [limits, allowlists, denied, wallets, tasks] = await Promise.all([
      app.limits.of(agent.id, { payees: true }),
      listAllowlists(app.prisma, [agent.id]),
      deniedOnList(app.prisma, agent.id),
      app.agentWallets([row]),
      app.openTasks(agent.id),
    ]);
    if (!limits) throw new ApiError("not_found");
    const { network } = app.chains.byNetwork(row.network) ?? app.chains.default;
    const allowlist = allowlists.get(agent.id) ?? [];
    return presentSelf(row, {
      limits,
      allowlist,
      denied,
      wallets,
      tasks,
      asset: network.usdc.address,
    });
  });
}

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
