// Goal: a client that pages through a list gets each row once, in order, for any page sizes and whatever is added or deleted meanwhile.
import * as fc from "fast-check";
import t from "tap";
import {
  newestFirst as inOneOrder,
  readMergeable,
  type KeysetWhere,
} from "../../server/infra/db/prisma.ts";
import {
  decodeCursor,
  DEFAULT_PAGE_SIZE,
  encodeCursor,
  readPage,
  toPage,
  type Place,
} from "../../server/core/paging.ts";

/** Many with the same timestamp: only their ids differ. */
const place = fc.record({
  createdAtMicros: fc.bigInt({ min: 0n, max: 6n }),
  id: fc.stringMatching(/^[a-z0-9_]{1,4}$/),
});
const places = fc.uniqueArray(place, {
  maxLength: 40,
  selector: ({ createdAtMicros, id }) => `${createdAtMicros} ${id}`,
});

const isOlder = (one: Place, other: Place): boolean =>
  one.createdAtMicros < other.createdAtMicros ||
  (one.createdAtMicros === other.createdAtMicros && one.id < other.id);
const newestFirst = (one: Place, other: Place): number => (isOlder(one, other) ? 1 : -1);

/** As the SQL of all lists does it: one row more than fits means that there is a next page. */
const read = (rows: readonly Place[], limit: number, after: Place | undefined): Place[] =>
  [...rows]
    .sort(newestFirst)
    .filter((row) => after === undefined || isOlder(row, after))
    .slice(0, limit + 1);

function walk(rows: Place[], limits: readonly number[], happens?: (page: number) => void): Place[] {
  const seen: Place[] = [];
  let cursor: string | undefined;
  const pages = rows.length;
  for (let page = 0; page <= pages; page += 1) {
    const wanted = String(limits[page % limits.length] ?? 1);
    const { limit, after } = readPage({ limit: wanted, ...(cursor && { cursor }) });
    const { items, nextCursor } = toPage(read(rows, limit, after), limit, (row) => row);
    if (items.length > limit) throw new Error("more than requested");
    if (items.length === 0 && page > 0 && !happens) throw new Error("an empty page");
    seen.push(...items);
    if (nextCursor === null) return seen;
    if (items.length < limit) throw new Error("a page that is not full is not the last");
    cursor = nextCursor;
    happens?.(page);
  }
  throw new Error("it does not end");
}

const limits = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 4 });
const same = (one: readonly Place[], other: readonly Place[]): boolean =>
  one.length === other.length && one.every((row, index) => row === other[index]);

t.test("each row once, in order", async () => {
  fc.assert(
    fc.property(places, limits, (rows, limits) =>
      same(walk(rows, limits), [...rows].sort(newestFirst)),
    ),
    { numRuns: 500 },
  );
});

t.test("rows added meanwhile are newer, and move nothing", async () => {
  fc.assert(
    fc.property(places, limits, (rows, limits) => {
      const all = [...rows];
      const before = [...rows].sort(newestFirst);
      const seen = walk(all, limits, (page) =>
        all.push({ createdAtMicros: 100n, id: `new${page}` }),
      );
      return same(seen, before);
    }),
    { numRuns: 500 },
  );
});

t.test("rows deleted meanwhile hide no other", async () => {
  fc.assert(
    fc.property(places, limits, fc.nat(), (rows, limits, seed) => {
      const all = [...rows];
      const gone = new Set<Place>();
      const seen = walk(all, limits, (page) => {
        const [row] = all.splice((seed + page) % all.length, 1);
        if (row) gone.add(row);
      });
      return same(
        seen.filter((row) => !gone.has(row)),
        [...rows].sort(newestFirst).filter((row) => !gone.has(row)),
      );
    }),
    { numRuns: 500 },
  );
});

t.test("a list over several databases has each row once, in one order", async () => {
  const at = fc.integer({ min: 0, max: 5_000 });
  const row = fc.record({
    micros: at,
    id: fc.stringMatching(/^[a-z0-9]{2}$/),
    place: fc.nat({ max: 2 }),
  });
  const rowsOf = fc.uniqueArray(row, { maxLength: 40, selector: ({ id }) => id });
  await fc.assert(
    fc.asyncProperty(rowsOf, fc.integer({ min: 1, max: 7 }), async (rows, limit) => {
      const stored = rows.map((each) => ({
        ...each,
        createdAt: new Date(Math.floor(each.micros / 1_000)),
      }));
      // A database orders by microseconds; it returns milliseconds.
      const database =
        (place: number) =>
        (where: KeysetWhere, { take }: { take?: number }) => {
          const { gte = new Date(0), lt = new Date(1e6) } = where.createdAt ?? {};
          const found = stored
            .filter((each) => each.place === place && each.createdAt >= gte && each.createdAt < lt)
            .toSorted((left, right) => right.micros - left.micros || (left.id < right.id ? 1 : -1));
          return Promise.resolve(found.slice(0, take));
        };
      const seen: string[] = [];
      let after: Place | undefined;
      for (;;) {
        const page = { limit, after };
        const lists = await Promise.all([0, 1, 2].map((at) => readMergeable(page, database(at))));
        const merged = lists.flat().toSorted(inOneOrder);
        const shown = merged.slice(0, limit);
        seen.push(...shown.map(({ id }) => id));
        const last = shown.at(-1);
        if (merged.length <= limit || !last) break;
        after = { id: last.id, createdAtMicros: BigInt(last.createdAt.getTime()) * 1_000n };
      }
      const wanted = stored.toSorted(inOneOrder).map(({ id }) => id);
      return seen.join(" ") === wanted.join(" ");
    }),
    { numRuns: 500 },
  );
});

t.test("a cursor is one text for one place; any other is refused or names one", async (t) => {
  fc.assert(
    fc.property(
      fc.bigInt({ min: 0n, max: 10n ** 16n - 1n }),
      fc.stringMatching(/^[A-Za-z0-9_.-]{1,64}$/),
      fc.nat(),
      fc.constantFrom("", "=", "x", "\n", "A", "%"),
      (createdAtMicros, id, at, other) => {
        const cursor = encodeCursor({ createdAtMicros, id });
        if (!/^[A-Za-z0-9_-]+$/.test(cursor)) return false;
        const found = decodeCursor(cursor);
        if (found?.createdAtMicros !== createdAtMicros || found.id !== id) return false;
        const index = at % cursor.length;
        const altered = decodeCursor(cursor.slice(0, index) + other + cursor.slice(index + 1));
        return altered === undefined || /^[A-Za-z0-9_.-]{1,64}$/.test(altered.id);
      },
    ),
    { numRuns: 1_000 },
  );
  t.same(readPage({}), { limit: DEFAULT_PAGE_SIZE, after: undefined });
});
