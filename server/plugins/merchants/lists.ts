/** The settlements of a merchant in all cells. */
import type { FastifyInstance } from "fastify";
import type { Static } from "typebox";
import { readKeyset, readMergeable } from "../../infra/db/prisma.ts";
import type { MerchantExportFilters, MerchantSettlement } from "../../schemas/merchants.ts";
import type { ListOfCells } from "../cells/lists.ts";
import type { OtherCellsOfMerchant } from "./other-cells.ts";
import { listPaid, type Payee } from "./store.ts";
import { presentPaid, readSettlementFilters } from "./view.ts";

type Filters = Static<typeof MerchantExportFilters>;
type Deps = Pick<FastifyInstance, "reading" | "config"> & {
  /** Undefined where this is the only cell. */
  others: OtherCellsOfMerchant | undefined;
};

export function settlementList(
  { reading, config, others }: Deps,
  { payee, query }: { payee: Payee; query: Filters },
): ListOfCells<MerchantSettlement> {
  const filter = readSettlementFilters(query, config.networks);
  const order = others ? readMergeable : readKeyset;
  return {
    here: async (page) => {
      const rows = await reading((prisma) => listPaid(prisma, payee, { ...filter, page }, order));
      return rows.map(presentPaid);
    },
    elsewhere: others && ((page, isAsked) => others.settlements(payee, query, page, isAsked)),
  };
}
