/** Fees of this facilitator: billed to the payee, shown to it, paid by it (docs/decisions/0044-fees.md). */
import fp from "fastify-plugin";
import { getAddress } from "viem";
import { PAY_FEES_PATH } from "../../core/fees.ts";
import { registerGauges } from "../../infra/telemetry.ts";
import { cellRoutes } from "./entries.ts";
import { FeePayments } from "./pay.ts";
import { Fees } from "./payee-fees.ts";
import routes from "./routes.ts";
import { owedReader, readFeeTotals } from "./store.ts";

export default fp(
  async (app) => {
    const { config, facilitator, pool } = app;
    const { fees: terms, publicUrl, networks, minPaymentAtomic, demoPayTo } = config;
    const owed = owedReader(pool);
    facilitator.chargeFees(
      new Fees({
        terms,
        exempt: [
          ...app.relayers.map(({ address }) => address),
          ...(demoPayTo ? [demoPayTo] : []),
        ].map((address) => address.toLowerCase()),
        owed,
        payUrl: (account) => `${publicUrl}${PAY_FEES_PATH}?account=${getAddress(account)}`,
      }),
    );
    const payments = new FeePayments({
      facilitator: facilitator.inProcessClient(),
      networks,
      terms,
      minPaymentAtomic,
      publicUrl,
      owed,
    });
    registerGauges(app.metrics, {
      labelNames: ["network"],
      rows: async () =>
        (await readFeeTotals(pool, terms.creditAtomic)).map(({ chainId, ...totals }) => ({
          labels: { network: `eip155:${chainId}` },
          ...totals,
        })),
      gauges: {
        purser_fees_charged_usdc: [
          "Fees charged to payees since the beginning; every replica reports the same",
          ({ charged }) => charged,
        ],
        purser_fees_paid_usdc: ["Fees that payees paid, advances included", ({ paid }) => paid],
        purser_fees_owed_usdc: ["What payees owe now", ({ owed: owing }) => owing],
        purser_fees_payees_refused: [
          "Payees that owe more than FEE_CREDIT, whose payments are refused",
          ({ refused }) => refused,
        ],
      },
    });
    await app.register(routes, { payments, owed });
    if (app.cells) await app.register(cellRoutes);
  },
  { name: "fees", dependencies: ["facilitator"] },
);
