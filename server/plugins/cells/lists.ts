/** Lists over all cells: in one order, with one cursor, and the names of cells that did not answer. */
import { encodeCursor, type PageRequest, type Place } from "../../core/paging.ts";
import { ApiError } from "../../errors.ts";
import type { Cell } from "../../core/cells.ts";
import type { FromOthers } from "./index.ts";

/** What the cells that answered have, and which did not. */
export interface Elsewhere<T> {
  found: T[];
  missing: string[];
}

export const collect = <T, Read>(
  { answers, missing }: FromOthers<T>,
  read: (answer: T) => Read,
): Elsewhere<Read> => ({ found: answers.map(({ answer }) => read(answer)), missing });

interface Item {
  id: string;
  createdAt: string;
}

/** Both read one item more than the page, which shows that there are more. */
export interface ListOfCells<T extends Item> {
  here(page: PageRequest): Promise<T[]>;
  /** Undefined where this is the only cell. */
  elsewhere: ((page: PageRequest, isAsked: IsAsked) => Promise<Elsewhere<T[]>>) | undefined;
}
type IsAsked = (cell: Cell) => boolean;

interface Listed<T> {
  items: T[];
  missing: string[];
}

/** How many items an export reads at a time, so that one of any size needs little memory. */
export const CHUNK = 500;

async function readList<T extends Item>(
  list: ListOfCells<T>,
  page: PageRequest,
  isAsked: IsAsked = () => true,
): Promise<Listed<T>> {
  const [here, elsewhere] = await Promise.all([list.here(page), list.elsewhere?.(page, isAsked)]);
  if (!elsewhere) return { items: here, missing: [] };
  const items = mergeNewest([here, ...elsewhere.found]).slice(0, page.limit + 1);
  return { items, missing: elsewhere.missing };
}

/** By the same order as each list. One that moved between cells is shown once. */
export function mergeNewest<T extends Item>(lists: readonly T[][]): T[] {
  const byId = new Map(lists.flat().map((item) => [item.id, item]));
  const orderOf = ({ createdAt, id }: Item): string => `${createdAt} ${id}`;
  return [...byId.values()].toSorted((left, right) => (orderOf(left) < orderOf(right) ? 1 : -1));
}

const placeOf = ({ id, createdAt }: Item): Place => ({
  id,
  createdAtMicros: BigInt(Date.parse(createdAt)) * 1000n,
});

export async function pageOfCells<T extends Item>(
  list: ListOfCells<T>,
  page: PageRequest,
): Promise<{ items: T[]; nextCursor: string | null; missingCells?: string[] }> {
  const { items, missing } = await readList(list, page);
  const shown = items.slice(0, page.limit);
  const last = shown.at(-1);
  const isMore = items.length > page.limit && last !== undefined;
  return {
    items: shown,
    nextCursor: isMore ? encodeCursor(placeOf(last)) : null,
    ...(list.elsewhere && { missingCells: missing }),
  };
}

/** Cells that do not answer at the start are left out and named. One that stops later ends the export with an error. */
export async function exportOfCells<T extends Item>(
  list: ListOfCells<T>,
): Promise<{ chunks: AsyncGenerator<T[]>; missing: string[] }> {
  const first = await readList(list, { limit: CHUNK, after: undefined });
  return { chunks: chunksAfter(list, first), missing: first.missing };
}

async function* chunksAfter<T extends Item>(
  list: ListOfCells<T>,
  first: Listed<T>,
): AsyncGenerator<T[]> {
  let read = first;
  for (;;) {
    const shown = read.items.slice(0, CHUNK);
    yield shown;
    const last = shown.at(-1);
    if (read.items.length <= CHUNK || !last) return;
    const page = { limit: CHUNK, after: placeOf(last) };
    read = await readList(list, page, ({ id }) => !first.missing.includes(id));
    if (read.missing.length > 0 && list.elsewhere)
      throw new ApiError("service_unavailable", {
        detail: `${read.missing.join(", ")} stopped answering.`,
      });
  }
}

/** `settlements-without-c2.csv`: the file's name says what is not in it, also later. */
export const fileName = (name: string, missing: readonly string[]): string =>
  `attachment; filename="${[name, ...missing.map((cell) => `without-${cell}`)].join("-")}.csv"`;
