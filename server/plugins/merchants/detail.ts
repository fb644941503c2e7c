/** One settlement of a merchant, with its refunds and its receipt. */
import type { FastifyInstance } from "fastify";
import type { MerchantSettlementDetail } from "../../schemas/merchants.ts";
import { receiptOf, receiptUrl } from "./receipts.ts";
import { findPaid, readRefundsOf, type Payee } from "./store.ts";
import { presentPaidWhole } from "./view.ts";

export async function findDetail(
  { prisma, config }: Pick<FastifyInstance, "prisma" | "config">,
  payee: Payee,
  id: string,
): Promise<MerchantSettlementDetail | undefined> {
  const row = await findPaid(prisma, payee, id);
  if (!row) return undefined;
  const [refunds, receipt] = await Promise.all([
    readRefundsOf(prisma, [row.id]),
    receiptOf(prisma, row.id),
  ]);
  return presentPaidWhole(
    row,
    refunds,
    receipt === undefined ? null : receiptUrl(config.publicUrl, receipt),
  );
}
