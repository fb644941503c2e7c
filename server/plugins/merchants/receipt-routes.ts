/** Receipts: the merchant makes the link, and everybody who has it reads the signed receipt. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyInstance } from "fastify";
import { ApiError } from "../../errors.ts";
import { databaseNow } from "../../infra/db/prisma.ts";
import { IdParams } from "../../schemas/common.ts";
import { NewMerchantReceipt, SignedMerchantReceipt } from "../../schemas/merchants.ts";
import { makeReceipt, receiptUrl, signReceipt } from "./receipts.ts";
import { findPaid, findReceipted, readRefundsOf, type Payee } from "./store.ts";

const tags = ["merchants"];

export async function makeReceiptOf(
  { prisma, config }: Pick<FastifyInstance, "prisma" | "config">,
  payee: Payee,
  settlementId: string,
): Promise<NewMerchantReceipt> {
  const row = await findPaid(prisma, payee, settlementId);
  if (!row) throw new ApiError("not_found", { detail: "You have no settlement with this id." });
  if (row.status !== "settled")
    throw new ApiError("conflict", { detail: "Only a settled payment has a receipt." });
  const id = await makeReceipt(prisma, row.id);
  return { id, url: receiptUrl(config.publicUrl, id) };
}

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.post(
    "/api/merchant/settlements/:id/receipt",
    {
      config: { auth: "owner", errors: ["conflict"] },
      schema: {
        tags,
        operationId: "makeReceipt",
        summary: "Make the public page of a payment, for its buyer; a repeat returns the same one",
        params: IdParams,
        response: { 200: NewMerchantReceipt },
      },
    },
    async ({ owner, params }) => {
      const others = app.otherCellsOfMerchant;
      const isElsewhere = others && !(await findPaid(app.prisma, owner, params.id));
      return isElsewhere ? others.receipt(owner, params.id) : makeReceiptOf(app, owner, params.id);
    },
  );

  app.get(
    "/api/receipts/:id",
    {
      config: {
        auth: "public",
        limit: "receipt",
        errors: ["keys_unavailable"],
        answerHeaders: {
          "X-Robots-Tag": { statuses: [200], description: "No search engine lists a receipt" },
        },
      },
      schema: {
        tags,
        operationId: "getReceipt",
        summary: "A signed receipt, by its unguessable id",
        description:
          "Signed as EIP-712 typed data by an account of `signers` in `GET /api/x402/supported`. A receipt is what the ledger has at `asOf`; it exists as long as its settlement is kept.",
        params: IdParams,
        response: { 200: SignedMerchantReceipt },
      },
    },
    async ({ params }, reply) => {
      const paid = await findReceipted(app.prisma, params.id);
      if (!paid) throw new ApiError("not_found", { detail: "There is no receipt with this id." });
      const [refunds, asOf] = await Promise.all([
        readRefundsOf(app.prisma, [paid.id]),
        databaseNow(app.prisma),
      ]);
      reply.header("x-robots-tag", "noindex");
      const facts = { id: params.id, service: app.config.publicUrl, paid, refunds, asOf };
      return signReceipt(facts, app.relayers[0]);
    },
  );
};

export default routes;
