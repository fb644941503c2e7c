import fp from "fastify-plugin";
import { hasNoWallet } from "../../core/teams.ts";
import { assertCountsOn } from "../orders/orders.ts";
import { endWaiting } from "../orders/waiting.ts";
import { payoutOf } from "../passkeys/payout.ts";
import { databaseSeconds, reserveWithdrawal } from "./store.ts";
import { Withdrawals, type WithdrawalContext } from "./withdraw.ts";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyRequest } from "fastify";
import { readChannelMoney } from "../agents/channel-money.ts";
import { ownAgent } from "../agents/store.ts";
import { IdParams } from "../../schemas/common.ts";
import {
  ExecuteWithdrawal,
  PreparedWithdrawal,
  PrepareWithdrawal,
  WithdrawalAnswer,
} from "../../schemas/withdrawals.ts";

declare module "fastify" {
  interface FastifyInstance {
    withdrawals: Withdrawals;
  }
}

export default fp(
  async (app) => {
    app.decorate(
      "withdrawals",
      new Withdrawals({
        calls: app.calls,
        steps: app.payments,
        settleWaitMs: app.config.settleWaitMs,
        settlement: app.settlement,
        readBalance: (chainId, wallet) => app.agentReserve.readBalance(chainId, wallet),
        outstanding: (args) => app.limits.outstanding(args),
        inChannels: (agentId) => readChannelMoney(app.prisma, agentId),
        reserve: (request) =>
          app.withAgentLock(request.agentId, () => reserveWithdrawal(app.pool, request)),
        now: () => databaseSeconds(app.pool),
        log: app.log,
        networks: app.chains.all.map(({ network }) => network),
        networkOf: (chainId) => app.networkOf(Number(chainId)),
        homeOf: async (owner) =>
          hasNoWallet(owner.chainId) ? (await payoutOf(app.prisma, owner))?.address : owner.address,
        countSignature: (owner, { hash: digest, signature }) =>
          assertCountsOn(app.prisma, owner, { digest, signature, isAgain: true }),
        checkSignature: (signer, signed) => app.ownerSignatures.check(signer, signed),
        wait: (owner, signed) => app.ownerOrders.wait(owner, signed),
        endWaiting: (nonce) => endWaiting(app.prisma, nonce),
      }),
    );
    await app.register(routes);
  },
  { name: "withdrawals" },
);

/** Error codes of executing an order. */
const EXECUTING = [
  "signatures_missing",
  "invalid_signature",
  "insufficient_funds",
  "second_wallet_only_tightens",
  "payout_address_missing",
  "payout_address_only",
  "withdrawal_replayed",
  "invalid_amount",
  "invalid_address",
  "signature_expired",
  "gas_budget_exhausted",
  "settlement_failed",
  "chain_unavailable",
  "policy_not_signed",
  "keys_unavailable",
  "relayer_unfunded",
  "payment_status_unknown",
] as const;

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "owner", second: true } as const;
  const tags = ["owners: withdrawals"];

  async function contextOf(request: FastifyRequest, agentId: string): Promise<WithdrawalContext> {
    const { owner } = request;
    const agent = await ownAgent(app.prisma, owner, agentId);
    return { agent, owner, requestId: request.id };
  }

  app.post(
    "/api/agents/:id/withdrawals/prepare",
    {
      config: {
        ...config,
        errors: [
          "insufficient_funds",
          "chain_unavailable",
          "payout_address_missing",
          "payout_address_only",
        ],
      },
      schema: {
        tags,
        operationId: "prepareWithdrawal",
        summary:
          "Prepare an order to sign with `eth_signTypedData_v4`, on any network; no money moves yet",
        params: IdParams,
        body: PrepareWithdrawal,
        response: { 200: PreparedWithdrawal },
      },
    },
    async (request, reply) => {
      reply.header("cache-control", "no-store");
      const context = await contextOf(request, request.params.id);
      return app.withdrawals.prepare(context, request.body);
    },
  );

  app.post(
    "/api/agents/:id/withdrawals",
    {
      config: { ...config, idempotencyKey: true, errors: EXECUTING },
      schema: {
        tags,
        operationId: "executeWithdrawal",
        summary: "Execute a signed order once, on the network for which it was signed",
        params: IdParams,
        body: ExecuteWithdrawal,
        response: { 200: WithdrawalAnswer },
      },
    },
    async (request, reply) => {
      const { body, params, owner } = request;
      const context = await contextOf(request, params.id);
      const route = `POST /api/agents/${context.agent.id}/withdrawals`;
      const idempotency = request.idempotencyRef({ subjectId: owner.id, route, body });
      const answer = await app.withdrawals.execute(context, body, idempotency);
      return reply.sendAnswer(answer);
    },
  );
};
