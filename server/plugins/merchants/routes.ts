/** Routes of the merchant's API, for owners signed in with the wallet that is paid. */
import { Readable } from "node:stream";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyRequest } from "fastify";
import { getAddress } from "viem";
import { isClosed } from "../../core/merchant-settings.ts";
import { hasNoWallet, TEAMS_CHAIN } from "../../core/teams.ts";
import { readPage, toPage } from "../../core/paging.ts";
import { ApiError } from "../../errors.ts";
import { IdParams, PageQuery } from "../../schemas/common.ts";
import {
  CreatedMerchantKey,
  CreateMerchantKey,
  Merchant,
  MerchantExportFilters,
  MerchantKeyPage,
  MerchantProductPage,
  MerchantProductQuery,
  MerchantQuery,
  MerchantSettlementDetail,
  MerchantSettlementFilters,
  MerchantSettlementPage,
  Refund,
  RefundProblem,
  RefundRequest,
  RevokedMerchantKey,
} from "../../schemas/merchants.ts";
import { databaseNow } from "../../infra/db/prisma.ts";
import { exportOfCells, fileName, pageOfCells } from "../cells/lists.ts";
import { acceptEmptyJson } from "../http/index.ts";
import { withinTime } from "../payments/search.ts";
import {
  listMerchantKeys,
  makeMerchantKey,
  revokeMerchantKey,
  viewMerchantKey,
  type KeyCall,
} from "./keys.ts";
import { findDetail } from "./detail.ts";
import { settlementList } from "./lists.ts";
import { addOverviews, readOverview } from "./overview.ts";
import { readProductRequest, readProducts } from "./products.ts";
import receiptRoutes from "./receipt-routes.ts";
import { presentRefund } from "./refunds.ts";
import { findPaid, readRefusals } from "./store.ts";
import { networkName, presentDay, presentReason, presentTotals, settlementsCsv } from "./view.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  await app.register(reading);
  await app.register(refunding);
  await app.register(keys);
  await app.register(receiptRoutes);
};

const tags = ["merchants"];
const DEFAULT_DAYS = 30;

/** The address of such an account is a name: nobody has a key for it, so what is paid to it is lost. */
async function assertHasWallet({ owner }: Pick<FastifyRequest, "owner">): Promise<void> {
  if (!hasNoWallet(owner.chainId)) return;
  const who = owner.chainId === TEAMS_CHAIN ? "A team" : "An account with passkeys";
  throw new ApiError("conflict", {
    detail: `${who} has no wallet that can be paid or can refund. Never use its address as payTo: the money would be lost. Sign in with the wallet that is paid.`,
  });
}

const reading: FastifyPluginAsyncTypebox = async (app) => {
  const config = { auth: "owner", errors: ["conflict"] } as const;
  app.addHook("preHandler", assertHasWallet);
  const others = app.otherCellsOfMerchant;
  const { reading, config: settings } = app;
  const lister = { reading: reading.bind(app), config: settings, others };

  app.get(
    "/api/merchant",
    {
      config,
      schema: {
        tags,
        operationId: "getMerchant",
        summary: "Settlements to this wallet: totals, volume per day, and failure reasons",
        querystring: MerchantQuery,
        response: { 200: Merchant },
      },
    },
    async ({ owner, query }) => {
      const days = Number(query.days ?? DEFAULT_DAYS);
      const [here, elsewhere, refusals] = await Promise.all([
        readOverview(app, owner, days),
        others?.overview(owner, days),
        app.reading((prisma) => readRefusals(prisma, owner.id, days)),
      ]);
      const sums = addOverviews(here, elsewhere?.found ?? []);
      return {
        address: getAddress(owner.address),
        network: owner.chainId === 0 ? null : networkName(owner.chainId),
        admitted: app.isAdmittedMerchant(owner),
        needsKey: isClosed(app.config),
        facilitator: `${app.config.publicUrl}/api/x402`,
        totals: presentTotals(sums.totals),
        days: sums.days.map(presentDay),
        failures: sums.failures.map(presentReason),
        refusals: refusals.map(presentReason),
        ...(elsewhere && { missingCells: elsewhere.missing }),
      };
    },
  );

  app.get(
    "/api/merchant/products",
    {
      config: { ...config, limit: "report", errors: ["too_much_to_read"] },
      schema: {
        tags,
        operationId: "listMerchantProducts",
        summary: "What was sold: sums by URL and method, the highest volume first",
        description:
          "Later pages sum the same time as the first one. Their order follows the sums of the moment.",
        querystring: MerchantProductQuery,
        response: { 200: MerchantProductPage },
      },
    },
    async ({ owner, query }) => {
      const request = readProductRequest(query);
      const { days, after } = request;
      const until = after?.until ?? (await databaseNow(app.prisma));
      const elsewhere = await others?.products(owner, { days, until });
      const page = await app.reading((prisma) =>
        withinTime(prisma, app.config.timings.searchMs, (tx) =>
          readProducts(tx, owner, { ...request, until }, elsewhere?.found.flat()),
        ),
      );
      return { ...page, ...(elsewhere && { missingCells: elsewhere.missing }) };
    },
  );

  app.get(
    "/api/merchant/settlements",
    {
      config: { ...config, errors: ["conflict", "invalid_address", "invalid_amount"] },
      schema: {
        tags,
        operationId: "listMerchantSettlements",
        summary: "Settlements to this wallet, newest first",
        querystring: MerchantSettlementFilters,
        response: { 200: MerchantSettlementPage },
      },
    },
    async ({ owner, query: { limit, cursor, ...query } }) => {
      const page = readPage({ ...(limit && { limit }), ...(cursor && { cursor }) });
      return pageOfCells(settlementList(lister, { payee: owner, query }), page);
    },
  );

  app.get(
    "/api/merchant/settlements.csv",
    {
      config: { ...config, errors: ["conflict", "invalid_address", "invalid_amount"] },
      schema: {
        tags,
        operationId: "exportMerchantSettlements",
        summary: "All settlements that match, as CSV",
        querystring: MerchantExportFilters,
        produces: ["text/csv"],
      },
    },
    async ({ owner, query }, reply) => {
      const list = settlementList(lister, { payee: owner, query });
      const { chunks, missing } = await exportOfCells(list);
      return reply
        .type("text/csv; charset=utf-8")
        .header("content-disposition", fileName("settlements", missing))
        .send(Readable.from(settlementsCsv(chunks)));
    },
  );

  app.get(
    "/api/merchant/settlements/:id",
    {
      config,
      schema: {
        tags,
        operationId: "getMerchantSettlement",
        summary: "One settlement with its refunds",
        params: IdParams,
        response: { 200: MerchantSettlementDetail },
      },
    },
    async ({ owner, params }) => {
      const found =
        (await findDetail(app, owner, params.id)) ??
        (await others?.find(owner, params.id))?.settlement;
      if (!found)
        throw new ApiError("not_found", { detail: "You have no settlement with this id." });
      return found;
    },
  );
};

const refunding: FastifyPluginAsyncTypebox = async (app) => {
  app.addHook("preHandler", assertHasWallet);
  const refundHere = async (...args: Parameters<typeof app.refunds.refund>): Promise<Refund> => {
    const row = await app.refunds.refund(...args);
    return presentRefund(row, networkName(row.chainId));
  };
  app.post(
    "/api/merchant/settlements/:id/refund",
    {
      config: {
        auth: "owner",
        limit: "settle",
        errors: [
          "conflict",
          "not_refundable",
          "settlement_not_final",
          "refund_changed",
          "refund_refused",
          "payee_screened",
          "screening_unavailable",
          "insufficient_funds",
          "amount_below_floor",
          "gas_budget_exhausted",
          "relayer_unfunded",
        ],
      },
      schema: {
        tags,
        operationId: "refundSettlement",
        summary:
          "Refund a payment or a part of it, with a transfer that the merchant's wallet signs",
        description:
          "Without `authorization` it returns 403 with the transfer to sign, from the paid wallet to the payer. The same request with it is relayed once. A repeat returns the same refund. 200: the refund has ended, and `status` is the result; 202: the outcome is not known yet.",
        params: IdParams,
        body: RefundRequest,
        response: { 200: Refund, 202: Refund, 403: RefundProblem },
      },
    },
    async ({ owner, params, body }, reply) => {
      const { id, address, chainId } = owner;
      const merchant = app.isAdmittedMerchant(owner) ? id : undefined;
      const refunder = { id, address, chainId, merchant };
      const others = app.otherCellsOfMerchant;
      const isElsewhere = others && !(await findPaid(app.prisma, owner, params.id));
      const refund = isElsewhere
        ? await others.refund(refunder, params.id, body)
        : await refundHere(refunder, params.id, body);
      return reply.code(refund.status === "pending" ? 202 : 200).send(refund);
    },
  );
};

const keys: FastifyPluginAsyncTypebox = async (app) => {
  const callOf = ({ owner, id }: FastifyRequest): KeyCall => ({
    prisma: app.prisma,
    owner,
    requestId: id,
  });

  app.get(
    "/api/merchant/keys",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listMerchantKeys",
        summary: "This merchant's keys, revoked ones included; never the keys themselves",
        querystring: PageQuery,
        response: { 200: MerchantKeyPage },
      },
    },
    async ({ owner, query }) => {
      const page = readPage(query);
      const rows = await listMerchantKeys(app.prisma, owner.id, page);
      return toPage(rows, page.limit, viewMerchantKey);
    },
  );

  app.post(
    "/api/merchant/keys",
    {
      config: { auth: "owner", errors: ["conflict"] },
      preHandler: assertHasWallet,
      schema: {
        tags,
        operationId: "createMerchantKey",
        summary: "Create a key for verify and settle (shown only once)",
        description:
          "Any signed-in wallet may create one. It gives no more access than third parties have, unless the operator admitted this wallet.",
        body: CreateMerchantKey,
        response: { 201: CreatedMerchantKey },
      },
    },
    async (request, reply) => {
      const { row, key } = await makeMerchantKey(callOf(request), {
        label: request.body.label?.trim() ?? "",
        cell: app.config.cells?.self,
      });
      return reply.code(201).send({ key: viewMerchantKey(row), apiKey: key });
    },
  );

  app.delete(
    "/api/merchant/keys/:id",
    {
      config: { auth: "owner", second: true },
      schema: {
        tags,
        operationId: "revokeMerchantKey",
        summary: "Revoke a key immediately",
        params: IdParams,
        response: { 200: RevokedMerchantKey },
      },
    },
    async (request) => ({
      key: viewMerchantKey(await revokeMerchantKey(callOf(request), request.params.id)),
    }),
  );
};

export default routes;
