/** The sites that a wallet has paid: only there may it sign in instead of paying again. */
import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import type { PaidAt } from "./covers.ts";

/** Whether the payment that was recorded for this site has settled; the ledger decides. */
export async function hasPaidAt(db: Db, { agentId, payee, site }: PaidAt): Promise<boolean> {
  const noted = await db.paidSite.findUnique({
    where: { agentId_site_payee: { agentId, site, payee } },
  });
  if (!noted) return false;
  const payment = await db.payment.findFirst({
    where: {
      agentId,
      id: noted.paymentId,
      kind: "x402",
      status: "settled",
      counterparty: payee,
      url: { startsWith: `${site}/` },
    },
    select: { id: true },
  });
  return payment !== null;
}

/** Records a payment to a site, which may accept a sign-in signature instead of a payment the next time. */
export async function notePaidSite(
  db: Db,
  { agentId, payee, site }: PaidAt,
  paymentId: string,
  { isSettled }: { isSettled: boolean },
): Promise<void> {
  const paidAt = await databaseNow(db);
  if (!isSettled) {
    const note = { agentId, site, payee, paymentId, paidAt };
    await db.paidSite.createMany({ data: [note], skipDuplicates: true });
    return;
  }
  await db.paidSite.upsert({
    where: { agentId_site_payee: { agentId, site, payee } },
    create: { agentId, site, payee, paymentId, paidAt },
    update: { paymentId, paidAt },
  });
}
