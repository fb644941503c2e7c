/** The validator for sellers: why nobody can pay this, or finds it. Anybody may use it, within budgets. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import fp from "fastify-plugin";
import { ApiError } from "../../errors.ts";
import type { OutboundRequest } from "../../infra/outbound/outbound.ts";
import { Validation, ValidateRequest } from "../../schemas/validate.ts";
import { validate } from "./validate.ts";

const PATH = "/api/x402/validate";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const { config, chains, prisma } = app;
  const deps = {
    send: (request: OutboundRequest) => app.x402Client.sendProbe(request),
    networks: config.networks,
    privateOrigins: config.fetchPrivateOrigins,
    minPaymentAtomic: config.minPaymentAtomic,
    publicUrl: config.publicUrl,
    fees: config.fees,
    timeoutMs: config.timings.validateMs,
    chain: {
      rpcOf: (networkId: string) => chains.byNetwork(networkId)?.rpc,
      check: (body: unknown) => app.facilitator.check(body),
    },
    prisma,
  };

  app.post(
    PATH,
    {
      config: { auth: "public", limit: "validate" },
      schema: {
        tags: ["facilitator"],
        operationId: "validatePaidApi",
        summary: "Why nobody can pay an API, or finds it: checks its 402, and pays nothing",
        description:
          "Requests the URL without a payment. A POST body goes out only where a POST without one is refused. Every finding has a code of docs/reference/validate.md.",
        body: ValidateRequest,
        response: { 200: Validation },
      },
    },
    async ({ body: { url: text, method = "GET", body } }, reply) => {
      const url = readUrl(text);
      if (body !== undefined && method === "GET")
        throw refuse("body.body", "is only for the method POST");
      // All callers together, and each target: nobody may use this to flood a third party.
      await app.countFor("validate-all", "all");
      await app.countFor("validate-host", url.host);
      reply.header("cache-control", "no-store");
      return validate(deps, { url, method, body });
    },
  );

  function readUrl(text: string): URL {
    const url = URL.canParse(text.trim()) ? new URL(text.trim()) : undefined;
    if (!url || !/^https?:$/.test(url.protocol))
      throw refuse("body.url", "must be an absolute http(s) URL");
    url.hash = "";
    // One validation must not start another.
    if (url.origin === new URL(config.publicUrl).origin && url.pathname === PATH)
      throw refuse("body.url", "is the validator itself");
    return url;
  }
};

const refuse = (path: string, message: string): ApiError =>
  new ApiError("validation_failed", {
    detail: `${path} ${message}`,
    extra: { errors: [{ path, message }] },
  });

export default fp(
  async (app) => {
    await app.register(routes);
  },
  { name: "validate" },
);
