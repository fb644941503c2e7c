/** What the cell of a merchant's account asks this cell. Registered only where there are several cells. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { readPage } from "../../core/paging.ts";
import { ApiError } from "../../errors.ts";
import { readMergeable } from "../../infra/db/prisma.ts";
import { assertForwarded } from "../../core/cells.ts";
import { withinTime } from "../payments/search.ts";
import {
  ANSWERED,
  ASKED,
  MOST_REFUSALS_BYTES,
  overviewWire,
  PATHS,
  productsWire,
  type Wire,
} from "./cell-wire.ts";
import { findDetail } from "./detail.ts";
import { readOverview } from "./overview.ts";
import { MOST_OF_CELL, readSold } from "./products.ts";
import { makeReceiptOf } from "./receipt-routes.ts";
import { presentRefund } from "./refunds.ts";
import { keepProductRefusals, keepRefusals } from "./refusals.ts";
import { listPaid } from "./store.ts";
import { networkName, presentPaid, readSettlementFilters } from "./view.ts";

const config = { auth: "cell" } as const;
const schemaOf = <Name extends keyof typeof ASKED>(
  name: Name,
  operationId: string,
  summary: string,
) => ({
  tags: ["cells"],
  operationId,
  summary,
  body: ASKED[name],
  response: { 200: ANSWERED[name] },
});

export const cellRoutes: FastifyPluginAsyncTypebox = async (app) => {
  app.post(
    PATHS.overview,
    {
      config,
      schema: schemaOf("overview", "getMerchantForCell", "Sums of what a wallet was paid here"),
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      return overviewWire(await readOverview(app, body.payee, body.days));
    },
  );

  app.post(
    PATHS.settlements,
    {
      config,
      schema: schemaOf("settlements", "listSettlementsForCell", "Settlements to a wallet"),
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      const { payee, query, limit, cursor } = body;
      const { after } = readPage({ ...(cursor !== undefined && { cursor }) });
      const filter = readSettlementFilters(query, app.config.networks);
      const page = { limit, after };
      const rows = await app.reading((prisma) =>
        listPaid(prisma, payee, { ...filter, page }, readMergeable),
      );
      return { items: rows.map(presentPaid) };
    },
  );

  app.post(
    PATHS.products,
    {
      config,
      schema: schemaOf("products", "listProductsForCell", "What a wallet sold, by product"),
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      const { payee, days } = body;
      const sold = { days, until: new Date(body.until), after: undefined, most: MOST_OF_CELL };
      const rows = await app.reading((prisma) =>
        withinTime(prisma, app.config.timings.searchMs, (tx) =>
          readSold(tx, { ...payee, id: null }, sold),
        ),
      );
      return productsWire(rows);
    },
  );

  app.post(
    PATHS.settlement,
    {
      config,
      schema: schemaOf("settlement", "getSettlementForCell", "One settlement to a wallet"),
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      return { settlement: (await findDetail(app, body.payee, body.id)) ?? null };
    },
  );

  app.post(
    PATHS.refund,
    {
      config,
      schema: schemaOf("refund", "refundForCell", "A refund of a payment that was settled here"),
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      const { payee, id, request, merchant } = body;
      return orRefused(async () => {
        const row = await app.refunds.refund({ ...payee, id: null, merchant }, id, request);
        return { refund: presentRefund(row, networkName(row.chainId)) };
      });
    },
  );

  app.post(
    PATHS.receipt,
    {
      config,
      schema: schemaOf("receipt", "makeReceiptForCell", "The receipt of a payment that is here"),
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      return orRefused(async () => ({ receipt: await makeReceiptOf(app, body.payee, body.id) }));
    },
  );

  app.post(
    PATHS.refusals,
    {
      config,
      bodyLimit: MOST_REFUSALS_BYTES,
      logLevel: "warn",
      schema: schemaOf(
        "refusals",
        "countRefusalsForCell",
        "Payments that were refused in another cell, for payees whose account is here",
      ),
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      await keepRefusals(app.pool, body.refusals);
      await keepProductRefusals(app.pool, body.products);
      return {};
    },
  );
};

/** The refusal belongs to the merchant, who gets it from its own cell. A fault stays a fault. */
async function orRefused<T>(act: () => Promise<T>): Promise<T | { refused: Wire["refused"] }> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof ApiError) || error.code === "internal_error") throw error;
    return { refused: { code: error.code, detail: error.message, extra: error.extra } };
  }
}
