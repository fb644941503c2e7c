// Goal: every cell names the same cell for a payment, also while the list of cells changes, and nobody but a cell can
// speak as one.
import t from "tap";
import {
  cellOfPayer,
  FORWARD_SECONDS,
  hasSeveralCells,
  hashBody,
  readCells,
  readForward,
  signForward,
} from "../../server/core/cells.ts";
import { InvalidSetting } from "../../server/core/setting.ts";

const FOUR = "c1=http://10.0.0.1,c2=http://10.0.0.2,c3=http://10.0.0.3,c4=http://10.0.0.4";
const payers = Array.from(
  { length: 4_000 },
  (_, index) =>
    `0x${(BigInt(index + 1) * 0x9e3779b97f4a7c15f39cc0605cedc834n).toString(16).padStart(40, "0").slice(-40)}`,
);

t.test("each cell has its share, and a new one takes only its own", async (t) => {
  const four = readCells(FOUR);
  const three = four.slice(0, 3);
  const counts = new Map<string, number>();
  let moved = 0;
  for (const payer of payers) {
    const before = cellOfPayer(three, payer, 1n)?.id ?? "none";
    const after = cellOfPayer(four, payer, 1n)?.id ?? "none";
    counts.set(after, (counts.get(after) ?? 0) + 1);
    if (before !== after) {
      moved += 1;
      if (after !== "c4") t.fail(`${payer} moved from ${before} to ${after}`);
    }
  }
  for (const [id, count] of counts) t.ok(Math.abs(count - 1_000) < 120, `${id}: ${count}`);
  t.equal(moved, counts.get("c4"));
});

t.test("neither the order of the list nor the spelling of an address matters", async (t) => {
  const four = readCells(FOUR);
  const turned = four.toReversed();
  for (const payer of payers.slice(0, 200))
    t.equal(
      cellOfPayer(four, payer, 1n),
      cellOfPayer(turned, payer.toUpperCase().replace("0X", "0x"), 1n),
    );
});

t.test(
  "a signature that ends before the change belongs to the old list, whenever it is read",
  async (t) => {
    const before = readCells("c1=http://10.0.0.1,c2=http://10.0.0.2");
    const changed = readCells(
      "c1=http://10.0.0.1,c2=http://10.0.0.2@0..2000,c3=http://10.0.0.3@1000",
    );
    for (const payer of payers.slice(0, 500)) {
      t.equal(cellOfPayer(changed, payer, 999n)?.id, cellOfPayer(before, payer, 999n)?.id);
      t.not(cellOfPayer(changed, payer, 2_000n)?.id, "c2");
    }
    const moving = payers.filter((payer) => hasSeveralCells(changed, payer)).length;
    t.ok(moving > 1_500 && moving < payers.length, `${moving} have several cells`);
    t.notOk(payers.some((payer) => hasSeveralCells(before, payer)));
    t.ok(payers.some((payer) => cellOfPayer(changed, payer, 1_000n)?.id === "c3"));
  },
);

t.test("a gap in the list names one cell, too", async (t) => {
  const gap = readCells("c1=http://10.0.0.1@0..1000,c2=http://10.0.0.2@2000");
  const found = payers.slice(0, 200).map((payer) => cellOfPayer(gap, payer, 1_500n)?.id);
  t.same(new Set(found), new Set(["c1", "c2"]));
});

t.test("a list that cannot be meant is refused", async (t) => {
  for (const text of [
    "c1",
    "cell=http://10.0.0.1",
    "c1=ftp://10.0.0.1",
    "c1=http://10.0.0.1/path",
    "c1=http://10.0.0.1,c1=http://10.0.0.2",
    "c1=http://10.0.0.1,c2=http://10.0.0.1",
    "c1=http://10.0.0.1@20..10",
    "c1=http://10.0.0.1@..10",
  ])
    t.throws(() => readCells(text), InvalidSetting, text);
});

t.test("a forward is believed once it is ours, to us, to this path, and fresh", async (t) => {
  const secret = "s".repeat(32);
  const bodyHash = hashBody({ a: 1 });
  const sent = { from: "c1", to: "c2", sentAtSeconds: 1_000, path: "/p", bodyHash };
  const header = signForward(secret, sent);
  const read = (about: Partial<typeof sent> & { nowSeconds?: number; secret?: string } = {}) =>
    readForward(header, { ...sent, ...about }, { secret, nowSeconds: 1_000, ...about });
  t.same(read(), { from: "c1", bodyHash });
  t.same(read({ nowSeconds: 1_000 + FORWARD_SECONDS }), { from: "c1", bodyHash });
  t.equal(read({ nowSeconds: 1_001 + FORWARD_SECONDS }), undefined);
  t.equal(read({ nowSeconds: 999 - FORWARD_SECONDS }), undefined);
  t.equal(read({ to: "c3" }), undefined);
  t.equal(read({ path: "/q" }), undefined);
  t.equal(read({ secret: "t".repeat(32) }), undefined);
  // Each character counts.
  for (let at = 3; at < header.length; at += 1) {
    const other = header[at] === "0" ? "1" : "0";
    const forged = header.slice(0, at) + other + header.slice(at + 1);
    const found = readForward(forged, sent, { secret, nowSeconds: 1_000 });
    if (found) t.fail(`character ${at} may be changed`);
  }
  for (const odd of [undefined, "", [header, header], `${header} `, `v2${header.slice(2)}`])
    t.equal(readForward(odd, sent, { secret, nowSeconds: 1_000 }), undefined);
});
