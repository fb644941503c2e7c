/** The merchant's API: the payee, signed in with its wallet, reads the settlements to it and makes refunds. */
import fp from "fastify-plugin";
import { ApiError } from "../../errors.ts";
import { AgentLock } from "../guardrails/agent-lock.ts";
import { cellRoutes } from "./cell-routes.ts";
import { OtherCellsOfMerchant } from "./other-cells.ts";
import routes from "./routes.ts";
import { databaseSeconds, makeRefund, type RefundFault } from "./refund-store.ts";
import { Refunds } from "./refunds.ts";
import {
  keepProductRefusals,
  keepRefusals,
  productCounts,
  productRefusalOf,
  refusalCounts,
  refusalOf,
} from "./refusals.ts";
import { findPaid, readRefundsOf } from "./store.ts";

declare module "fastify" {
  interface FastifyInstance {
    refunds: Refunds;
    /** Undefined where this is the only cell. */
    otherCellsOfMerchant: OtherCellsOfMerchant | undefined;
    /** Stores the counted refusals immediately. */
    keepRefusals(): Promise<void>;
    /** Tests stop the process at a named point; nothing else sets it. */
    refundFaults: { at?: (point: RefundFault) => Promise<void> };
  }
}

const tooBusy = (cause: unknown): ApiError =>
  new ApiError("service_unavailable", {
    detail: "Too many refunds of this payment are in progress. Send the same request again.",
    headers: { "retry-after": "2" },
    cause,
  });
const HAND_OVER_MS = 10_000;

export default fp(
  async (app) => {
    const faults: typeof app.refundFaults = {};
    const refundLock = new AgentLock({ maxWaiting: 200, maxWaitMs: 10_000 });
    app.decorate("refundFaults", faults);
    app.decorate(
      "refunds",
      new Refunds({
        networkOf: (chainId) => app.chains.byChainId(chainId)?.network,
        settlement: app.settlement,
        check: (body) => app.facilitator.check(body),
        isUsed: (authorization) => app.chainReads.isEnded(authorization.chainId, authorization),
        findPaid: (payee, id) => findPaid(app.prisma, payee, id),
        readRefunds: (id) => readRefundsOf(app.prisma, [id]),
        // Refunds of one settlement wait here for its row, and not while holding a database connection.
        make: (refund) =>
          refundLock
            .take(refund.settlementId, () =>
              makeRefund(
                {
                  pool: app.pool,
                  settlement: app.settlement,
                  fault: async (point) => faults.at?.(point),
                },
                refund,
              ),
            )
            .catch((error: unknown) => {
              throw error instanceof ApiError && error.code === "agent_busy"
                ? tooBusy(error)
                : error;
            }),
        now: () => databaseSeconds(app.pool),
        waitMs: app.config.settleWaitMs,
      }),
    );
    const waitMs = app.config.settleWaitMs;
    const others = app.cells && new OtherCellsOfMerchant(app.cells, { waitMs });
    app.decorate("otherCellsOfMerchant", others);
    countRefusals();
    await app.register(routes);
    if (others) await app.register(cellRoutes);

    function countRefusals(): void {
      const tally = refusalCounts();
      const byProduct = productCounts();
      const handOver = async (): Promise<void> => {
        try {
          await tally.handOver(async (refusals) => {
            await keepRefusals(app.pool, refusals);
            await others?.sendRefusals({ refusals, products: [] });
          });
          await byProduct.handOver(async (products) => {
            await keepProductRefusals(app.pool, products);
            await others?.sendRefusals({ refusals: [], products });
          });
        } catch (err) {
          app.log.warn({ err }, "counted refusals not stored yet");
        }
      };
      app.decorate("keepRefusals", handOver);
      app.onRefusedPayment((operation, body, reason) => {
        const refusal = refusalOf(operation, { body, reason }, app.config.networks);
        if (!refusal) return;
        tally.add(refusal);
        const product = productRefusalOf(refusal, body);
        if (product) byProduct.add(product);
        if (tally.isFull) void handOver();
      });
      const timer = setInterval(() => void handOver(), HAND_OVER_MS).unref();
      app.addHook("onClose", async () => {
        clearInterval(timer);
        await handOver();
      });
    }
  },
  { name: "merchants" },
);
