/** Routes of fees: what the signed-in payee owes, and the place where anybody pays it. */
import { Readable } from "node:stream";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress } from "viem";
import { PAY_FEES_PATH } from "../../core/fees.ts";
import { parseAddress } from "../../core/foreign-text.ts";
import { formatAtomic } from "../../core/money.ts";
import { findNetwork } from "../../core/networks.ts";
import { readPage } from "../../core/paging.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { PageQuery, PaymentRequiredAnswer } from "../../schemas/common.ts";
import { FeeEntryPage, FeesPaid, MerchantFees, PayFeesQuery } from "../../schemas/fees.ts";
import { exportOfCells, fileName, pageOfCells } from "../cells/lists.ts";
import { acceptEmptyJson } from "../http/index.ts";
import type { FeePayments } from "./pay.ts";
import { feeList } from "./entries.ts";
import { readFeeAccounts, type FeeKey } from "./store.ts";
import { entriesCsv, presentAccount, presentOwed, presentTerms } from "./view.ts";

interface Options {
  payments: FeePayments;
  owed: (key: FeeKey) => Promise<bigint>;
}

const tags = ["merchants"];
const ANSWER_HEADERS = {
  "PAYMENT-REQUIRED": {
    statuses: [402],
    description: "Amount and payee: base64 JSON of x402 v2",
  },
  "PAYMENT-RESPONSE": {
    statuses: [200, 402],
    description: "Result of the payment: base64 JSON of x402 v2",
  },
  "X-PAYMENT-RESPONSE": { statuses: [200, 402], description: "The same, with the name of x402 v1" },
};

const routes: FastifyPluginAsyncTypebox<Options> = async (app, options) => {
  acceptEmptyJson(app);
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  await app.register(reading);
  await app.register(paying, options);
};

const reading: FastifyPluginAsyncTypebox = async (app) => {
  const { config, prisma } = app;
  const { fees, publicUrl } = config;

  app.get(
    "/api/merchant/fees",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "getMerchantFees",
        summary: "What this wallet owes the facilitator for its settlements",
        response: { 200: MerchantFees },
      },
    },
    async ({ owner }) => {
      const chainIds = config.networks.map(({ chainId }) => chainId);
      const accounts = await readFeeAccounts(prisma, owner, chainIds);
      return {
        terms: presentTerms(fees),
        pay: fees.payTo
          ? `${publicUrl}${PAY_FEES_PATH}?account=${getAddress(owner.address)}`
          : null,
        accounts: accounts.map((row) => presentAccount(row, fees)),
      };
    },
  );

  app.get(
    "/api/merchant/fees/entries",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listMerchantFees",
        summary: "Fees and payments of fees, newest first",
        querystring: PageQuery,
        response: { 200: FeeEntryPage },
      },
    },
    async ({ owner, query }) => {
      return pageOfCells(feeList(app, owner), readPage(query));
    },
  );

  app.get(
    "/api/merchant/fees/entries.csv",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "exportMerchantFees",
        summary: "All fees and payments of fees, as CSV",
        produces: ["text/csv"],
      },
    },
    async ({ owner }, reply) => {
      const { chunks, missing } = await exportOfCells(feeList(app, owner));
      return reply
        .type("text/csv; charset=utf-8")
        .header("content-disposition", fileName("fees", missing))
        .send(Readable.from(entriesCsv(chunks)));
    },
  );
};

const paying: FastifyPluginAsyncTypebox<Options> = async (app, { payments, owed }) => {
  const { networks } = app.config;

  app.post(
    PAY_FEES_PATH,
    {
      config: {
        auth: "public",
        limit: "settle",
        answerHeaders: ANSWER_HEADERS,
        errors: ["invalid_address", "invalid_amount", "not_found"],
      },
      schema: {
        tags,
        operationId: "payMerchantFees",
        summary: "Pay the fees that a payee owes, with x402",
        description:
          "Without a proof of payment it returns the protocol's 402 with what is owed, or with `amount`. Anybody may pay for anybody. The account is credited once for each payment, in the transaction that records it; a payment of fees has no fee.",
        querystring: PayFeesQuery,
        response: { 200: FeesPaid, 402: PaymentRequiredAnswer },
      },
    },
    async ({ query, headers }, reply) => {
      const parsed = parseAddress(query.account);
      if (!parsed.ok) throw refuseField("invalid_address", "query.account", parsed.reason);
      const network =
        query.network === undefined ? networks[0] : findNetwork(query.network, networks);
      if (!network)
        throw refuseField(
          "validation_failed",
          "query.network",
          `must be one of ${networks.map(({ id }) => id).join(", ")}`,
        );
      const { address: account } = parsed;
      const key = { chainId: network.chainId, account };
      const before = await owed(key);
      const charge = await payments.pay({ account, network, amount: query.amount, headers });
      reply.headers(charge.headers);
      if (charge.kind !== "settled")
        return reply.code(402).send(("body" in charge ? charge.body : {}) as never);
      return {
        account: getAddress(account),
        network: network.id,
        paid: formatAtomic(BigInt(charge.receipt.amount)),
        txHash: charge.receipt.transaction,
        // Another cell may have settled it, which is known here in some seconds.
        ...presentOwed(app.cells ? before - BigInt(charge.receipt.amount) : await owed(key)),
      };
    },
  );
};

export default routes;
