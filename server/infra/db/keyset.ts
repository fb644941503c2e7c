import type { PageRequest } from "../../core/paging.ts";

/** Selects a row's place for `toPage`: `SELECT ..., ${selectPlace("p")} FROM payments p`. */
export const selectPlace = (alias: string): string =>
  `(extract(epoch FROM ${alias}.created_at) * 1000000)::bigint AS "createdAtMicros", ${alias}.id`;

/**
 * The keyset condition, for parameters $n and $n+1 from `placeParams`. Without a cursor it compares
 * with infinity, so that it stays an index condition under a generic plan too.
 */
export const beforePlace = (alias: string, n: number): string =>
  `(${alias}.created_at, ${alias}.id) < (coalesce(timestamptz 'epoch' + $${n}::bigint * interval '1 microsecond', 'infinity'), coalesce($${n + 1}::text, ''))`;

export const newestFirst = (alias: string): string =>
  `ORDER BY ${alias}.created_at DESC, ${alias}.id DESC`;

export const placeParams = (page: PageRequest): [string | null, string | null] => [
  page.after?.createdAtMicros.toString() ?? null,
  page.after?.id ?? null,
];
