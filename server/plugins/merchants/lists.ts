/** Lists of settlements over all cells: in one order, with one cursor, and the names of cells that did not answer. */
import type { FastifyInstance } from "fastify";
import type { Static } from "typebox";
import { encodeCursor, type PageRequest } from "../../core/paging.ts";
import { ApiError } from "../../errors.ts";
import { readKeyset, readMergeable } from "../../infra/db/prisma.ts";
import type {
  MerchantExportFilters,
  MerchantSettlement,
  MerchantSettlementPage,
} from "../../schemas/merchants.ts";
import type { OtherCellsOfMerchant } from "./other-cells.ts";
import { listPaid, type Payee } from "./store.ts";
import {
  CSV_CHUNK,
  placeOfSettlement,
  presentPaid,
  readSettlementFilters,
  settlementsCsv,
} from "./view.ts";

type Filters = Static<typeof MerchantExportFilters>;
type Deps = Pick<FastifyInstance, "reading" | "config"> & {
  /** Undefined where this is the only cell. */
  others: OtherCellsOfMerchant | undefined;
};
interface Listed {
  /** One more than the page, if there are more. */
  items: MerchantSettlement[];
  missing: string[];
}

async function list(
  { reading, config, others }: Deps,
  { payee, query }: { payee: Payee; query: Filters },
  page: PageRequest,
  /** Cells that are left out. */
  without: readonly string[] = [],
): Promise<Listed> {
  const filter = { ...readSettlementFilters(query, config.networks), page };
  const [here, elsewhere] = await Promise.all([
    reading((prisma) => listPaid(prisma, payee, filter, others ? readMergeable : readKeyset)),
    others?.settlements(payee, query, page, ({ id }) => !without.includes(id)),
  ]);
  const ours = here.map(presentPaid);
  if (!elsewhere) return { items: ours, missing: [] };
  const items = mergeSettlements([ours, ...elsewhere.found]).slice(0, page.limit + 1);
  return { items, missing: elsewhere.missing };
}

/** By the same order as each list. A payment that moved between cells is shown once. */
export function mergeSettlements(lists: readonly MerchantSettlement[][]): MerchantSettlement[] {
  const byId = new Map(lists.flat().map((item) => [item.id, item]));
  const placeOf = ({ createdAt, id }: MerchantSettlement): string => `${createdAt} ${id}`;
  return [...byId.values()].toSorted((left, right) => (placeOf(left) < placeOf(right) ? 1 : -1));
}

export async function settlementPage(
  deps: Deps,
  asked: { payee: Payee; query: Filters },
  page: PageRequest,
): Promise<Static<typeof MerchantSettlementPage>> {
  const { items, missing } = await list(deps, asked, page);
  const shown = items.slice(0, page.limit);
  const last = shown.at(-1);
  const isMore = items.length > page.limit && last !== undefined;
  return {
    items: shown,
    nextCursor: isMore ? encodeCursor(placeOfSettlement(last)) : null,
    ...(deps.others && { missingCells: missing }),
  };
}

/** Cells that do not answer at the start are left out and named. One that stops later ends the export with an error. */
export async function settlementExport(
  deps: Deps,
  asked: { payee: Payee; query: Filters },
): Promise<{ lines: AsyncGenerator<string>; missing: string[] }> {
  const start = { limit: CSV_CHUNK, after: undefined };
  let first: Listed | undefined = await list(deps, asked, start);
  const { missing } = first;
  const lines = settlementsCsv(async (page) => {
    const read = first ?? (await list(deps, asked, page, missing));
    if (!first && read.missing.length > 0)
      throw new ApiError("service_unavailable", {
        detail: `${read.missing.join(", ")} stopped answering.`,
      });
    first = undefined;
    return read.items;
  });
  return { lines, missing };
}
