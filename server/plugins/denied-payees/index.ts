/** What an owner never pays, from any agent: adding an entry needs no signature, removing one needs the owner's. */
import fp from "fastify-plugin";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { readPage, toPage } from "../../core/paging.ts";
import { PageQuery } from "../../schemas/common.ts";
import {
  AllowPayeeAgainAnswer,
  AllowPayeeAgainBody,
  allowPayeeAgainRefusals,
  DeniedPayeePage,
  DenyPayeeAnswer,
  DenyPayeeBody,
} from "../../schemas/denied-payees.ts";
import { ownerCall } from "../agents/change.ts";
import { listDenied } from "../agents/denied-store.ts";
import { allowPayeeAgain, denyPayee, viewDenied } from "./denied-payees.ts";

export default fp(
  async (app) => {
    await app.register(routes);
  },
  { name: "denied-payees" },
);

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const tags = ["owners: denied payees"];
  // An owner's orders that concern no agent are signed for the first network.
  const chainId = app.config.networks[0].chainId;
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));

  app.get(
    "/api/owner/denied-payees",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listDeniedPayees",
        summary: "The addresses and sites that none of the owner's agents pays",
        querystring: PageQuery,
        response: { 200: DeniedPayeePage },
      },
    },
    async ({ owner, query }) => {
      const page = readPage(query);
      return toPage(await listDenied(app.prisma, owner.id, page), page.limit, viewDenied);
    },
  );

  app.post(
    "/api/owner/denied-payees",
    {
      config: {
        auth: "owner",
        second: true,
        errors: ["invalid_address", "denied_payee_quota_exceeded"],
      },
      schema: {
        tags,
        operationId: "denyPayee",
        summary: "Never pay an address, or anything at a site, from any agent",
        description:
          "When this returns, no payment to it is reserved any more; those that were signed before settle. Adding it twice is no error.",
        body: DenyPayeeBody,
        response: { 200: DenyPayeeAnswer },
      },
    },
    async (request) => {
      const denied = await denyPayee(ownerCall(request), request.body);
      return { success: true as const, denied: viewDenied(denied) };
    },
  );

  app.post(
    "/api/owner/denied-payees/remove",
    {
      config: { auth: "owner", errors: ["invalid_address"] },
      schema: {
        tags,
        operationId: "allowPayeeAgain",
        summary: "Remove a denied payee, with the owner's signature",
        description: "Each agent then pays it again as far as its rules allow.",
        body: AllowPayeeAgainBody,
        response: { 200: AllowPayeeAgainAnswer, ...allowPayeeAgainRefusals },
      },
    },
    async (request) => {
      const removed = await allowPayeeAgain(ownerCall(request), chainId, request.body);
      return { success: true as const, removed };
    },
  );
};
