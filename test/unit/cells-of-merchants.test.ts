// Goal: the sums of several cells are the sums of all their payments, and no product is lost or shown twice.
import t from "tap";
import { addOverviews, type Overview } from "../../server/plugins/merchants/overview.ts";
import { mergeProducts, type ProductRow } from "../../server/plugins/merchants/products.ts";

const day = (date: string) => new Date(`${date}T00:00:00Z`);

function overview(settled: number, dates: string[], reasons: Record<string, number>): Overview {
  const volume = BigInt(settled) * 10n;
  return {
    totals: { settled, volume, pending: 1, failed: 2, payers: 1, refunds: 1, refunded: 3n },
    days: dates.map((date) => ({ day: day(date), settled, failed: 1, volume, refunded: 1n })),
    failures: Object.entries(reasons).map(([reason, count]) => ({
      reason,
      count,
      lastAt: day(`2026-01-0${count}`),
    })),
  };
}

t.test("sums of cells that do not agree which day it is", async (t) => {
  const sum = addOverviews(overview(2, ["2026-01-01", "2026-01-02"], { a: 1, b: 4 }), [
    overview(3, ["2026-01-02", "2026-01-03"], { a: 5 }),
    overview(5, ["2026-01-01", "2026-01-02"], {}),
  ]);
  t.match(sum.totals, {
    settled: 10,
    volume: 100n,
    pending: 3,
    failed: 6,
    payers: 3,
    refunded: 9n,
  });
  t.same(
    sum.days.map(({ settled, volume }) => [settled, volume]),
    [
      [7, 70n],
      [10, 100n],
    ],
  );
  t.same(sum.failures, [
    { reason: "a", count: 6, lastAt: day("2026-01-05") },
    { reason: "b", count: 4, lastAt: day("2026-01-04") },
  ]);
});

t.test("products of cells, page by page", async (t) => {
  const product = (key: string, volume: bigint, failed = 0): ProductRow => ({
    url: key,
    method: "",
    settled: 1,
    volume,
    refunded: 0n,
    pending: 0,
    failed,
    refused: 0,
    trouble: failed,
    key,
  });
  const lists = [
    [product("a", 5n), product("c", 2n), product("d", 2n, 1)],
    [product("c", 4n), product("b", 2n), product("e", 2n)],
  ];
  const seen: [string, bigint][] = [];
  let after: { until: Date; volume: bigint; trouble: number; key: string } | undefined;
  for (;;) {
    const [row] = mergeProducts(lists, { after, most: 1 });
    if (!row) break;
    seen.push([row.key, row.volume]);
    after = { ...row, until: new Date() };
  }
  t.same(seen, [
    ["c", 6n],
    ["a", 5n],
    ["d", 2n],
    ["b", 2n],
    ["e", 2n],
  ]);
});
