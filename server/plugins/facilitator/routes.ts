import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { Type } from "typebox";
import { Problem, IdParams } from "../../schemas/common.ts";
import {
  PaymentBody,
  SettleAnswer,
  SettlementState,
  VerifyAnswer,
  FacilitatorService,
  Supported,
  FacilitatorStats,
} from "../../schemas/facilitator.ts";
import { ApiError } from "../../errors.ts";

/** The body's schema is documentation: what parses as JSON is answered in the protocol's own words. */
const acceptAll = () => () => true;
const IDEMPOTENCY_KEY = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/;

export const paymentRoutes: FastifyPluginAsyncTypebox = async (app) => {
  const tags = ["facilitator"];

  app.post(
    "/api/x402/verify",
    {
      config: { auth: "facilitator" },
      // Thousands a second and nothing moves: counted in the metrics, not written one by one.
      logLevel: "warn",
      validatorCompiler: acceptAll,
      schema: {
        tags,
        summary: "Check a payment; every outcome of the protocol has status 200",
        body: PaymentBody,
        response: { 200: VerifyAnswer, "4xx": Problem },
      },
    },
    (request) => app.facilitator.verify(request.body),
  );

  app.post(
    "/api/x402/settle",
    {
      config: { auth: "facilitator" },
      validatorCompiler: acceptAll,
      schema: {
        tags,
        summary: "Settle a payment exactly once; every outcome of the protocol has status 200",
        description:
          "A retry with the same `Idempotency-Key` header and body hears the first answer; anyone else `duplicate_settlement`. Nothing inside the payload proves who is calling.",
        headers: Type.Object({ "idempotency-key": Type.Optional(Type.String()) }),
        body: PaymentBody,
        response: { 200: SettleAnswer, "4xx": Problem },
      },
    },
    (request, reply) => {
      const header = request.headers["idempotency-key"];
      const idempotencyKey = Array.isArray(header) ? header.join(",") : header;
      if (idempotencyKey !== undefined && !IDEMPOTENCY_KEY.test(idempotencyKey))
        throw new ApiError("idempotency_key_invalid");
      return app.facilitator.settle(request.body, {
        idempotencyKey,
        credential: request.headers.authorization,
        isGone: () => reply.raw.destroyed,
      });
    },
  );

  app.get(
    "/api/x402/payments/:id",
    {
      config: { auth: "public" },
      schema: {
        tags,
        summary: "State and transaction hash of a settlement",
        params: IdParams,
        response: { 200: SettlementState, "4xx": Problem },
      },
    },
    async (request, reply) => {
      const state = await app.facilitator.payment(request.params.id);
      if (!state) throw new ApiError("not_found", { detail: "There is no such settlement." });
      reply.header("cache-control", "no-store");
      return state;
    },
  );
};

/** What this facilitator is, and what it did: for paid APIs and for people. */
export const serviceRoutes: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "public" } as const;
  const tags = ["facilitator"];

  app.get(
    "/api/x402",
    {
      config,
      schema: {
        tags,
        summary: "What this facilitator settles: exactly the configured networks and assets",
        response: { 200: FacilitatorService },
      },
    },
    async () => app.facilitator.service(),
  );

  app.get(
    "/api/x402/supported",
    {
      config,
      schema: {
        tags,
        summary: "The protocol's supported kinds; stock middleware reads this at start",
        response: { 200: Supported },
      },
    },
    async () => app.facilitator.supported(),
  );

  app.get(
    "/api/x402/stats",
    {
      config: { auth: "public" },
      schema: {
        tags: ["facilitator"],
        summary: "What this facilitator did for others",
        response: { 200: FacilitatorStats },
      },
    },
    async (_request, reply) => {
      reply.header("cache-control", "no-store");
      return app.facilitatorStats();
    },
  );
};
