/**
 * Keyset pagination of all lists: newest first by (created_at, id), so that pages stay stable while rows are added. The
 * cursor is opaque to clients and contains the last row's position.
 */
import { ApiError } from "../errors.ts";
import { readForeignJson } from "./foreign-text.ts";

export const DEFAULT_PAGE_SIZE = 25;

/** A row's position in its list. In microseconds, as Postgres orders rows. */
export interface Place {
  createdAtMicros: bigint;
  id: string;
}

export interface PageRequest {
  limit: number;
  /** Rows after this position (older ones); undefined for the first page. */
  after: Place | undefined;
}

export interface PageOf<T> {
  items: T[];
  nextCursor: string | null;
}

/** Parses the query strings of `schemas/common.ts` (`PageQuery`); refuses an invalid cursor. */
export function readPage(query: { limit?: string; cursor?: string }): PageRequest {
  const limit = query.limit === undefined ? DEFAULT_PAGE_SIZE : Number(query.limit);
  if (query.cursor === undefined) return { limit, after: undefined };
  const after = decodeCursor(query.cursor);
  if (!after) throw invalidCursor();
  return { limit, after };
}

export function invalidCursor(): ApiError {
  const message = "is not a cursor of this list; use nextCursor of the previous page";
  return new ApiError("validation_failed", {
    detail: `query.cursor ${message}`,
    extra: { errors: [{ path: "query.cursor", message }] },
  });
}

/** Makes a page from up to `limit + 1` rows: the extra row only shows that there are more. */
export function toPage<Row extends Place, Item>(
  rows: readonly Row[],
  limit: number,
  toItem: (row: Row) => Item,
): PageOf<Item> {
  const shown = rows.slice(0, limit);
  const last = shown.at(-1);
  const nextCursor = rows.length > limit && last ? encodeCursor(last) : null;
  return { items: shown.map(toItem), nextCursor };
}

export function encodeCursor({ createdAtMicros, id }: Place): string {
  return Buffer.from(JSON.stringify([createdAtMicros.toString(), id])).toString("base64url");
}

export function decodeCursor(cursor: string): Place | undefined {
  const text = Buffer.from(cursor, "base64url").toString("utf8");
  const read = readForeignJson(() => JSON.parse(text) as unknown);
  if (!read.ok || !Array.isArray(read.value) || read.value.length !== 2) return undefined;
  const [micros, id] = read.value as unknown[];
  // 16 digits last until the year 2286; ids have only these characters, tasks' ids too.
  if (typeof micros !== "string" || !/^[0-9]{1,16}$/.test(micros)) return undefined;
  if (typeof id !== "string" || !/^[A-Za-z0-9_.-]{1,64}$/.test(id)) return undefined;
  return { createdAtMicros: BigInt(micros), id };
}
