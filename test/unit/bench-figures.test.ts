// Goal: a benchmark figure reports the measurement and whether it reached its target; a loss is computed from medians and only in the worse direction.
import t from "tap";
import type { Figure } from "../bench/context.ts";
import { lostIn } from "../bench/baseline.ts";
import { atMost, figure, inRounds } from "../bench/rounds.ts";

t.test("servers are measured in turn, and the first one changes every round", async (t) => {
  const order: string[] = [];
  const servers = { ours: {}, reference: {} } as never;
  const measured = await inRounds({ servers }, async (name, round) => {
    order.push(name);
    return round;
  });
  t.strictSame(order, ["reference", "ours", "ours", "reference", "reference", "ours"]);
  t.strictSame(measured, { ours: [0, 1, 2], reference: [0, 1, 2] });
});

t.test("a target is compared with medians", async (t) => {
  const facts = {
    what: "rate",
    unit: "/s",
    better: "more",
    of: (rate: number) => rate,
  } as const;
  const twice = {
    label: ">= 2x",
    reached: ({ ours, reference = 0 }: { ours: number; reference?: number }) =>
      ours >= 2 * reference,
  };
  const samples = { ours: [900, 210, 190], reference: [100, 100, 1] };
  t.equal(figure(samples, { ...facts, target: twice }).target?.isReached, true);
  const slow = { ...samples, ours: [900, 190, 180] };
  t.equal(figure(slow, { ...facts, target: twice }).target?.isReached, false);
});

t.test("a loss of more than a tenth is reported", async (t) => {
  const kept = { row: { rate: { ours: 100 }, time: { ours: 10 } } };
  const of = (what: string, better: "less" | "more", ours: number[]) =>
    lostIn("row", { what, unit: "", better, samples: { ours } }, kept);
  t.equal(of("rate", "more", [80, 200, 80]), "20 % (was 100)");
  t.equal(of("rate", "more", [91, 91, 10]), "");
  t.equal(of("rate", "more", [300, 300, 300]), "", "a gain is no loss");
  t.equal(of("time", "less", [12, 12, 1]), "20 % (was 10)");
  t.equal(of("time", "less", [1, 1, 50]), "");
  t.equal(of("new", "less", [1, 1, 50]), "", "no earlier figure was kept");
});

t.test("loss is measured relative to the reference, where both runs measured it", async (t) => {
  const kept = { row: { time: { ours: 10, reference: 100 }, alone: { ours: 10 } } };
  const of = (what: string, samples: Figure["samples"]) =>
    lostIn("row", { what, unit: "", better: "less", samples }, kept);
  t.equal(of("time", { ours: [20], reference: [200] }), "", "the machine is half as fast");
  t.equal(of("time", { ours: [12], reference: [100] }), "20 % (was 0.1x reference)");
  t.equal(of("time", { ours: [10], reference: [50] }), "100 % (was 0.1x reference)");
  t.equal(of("time", { ours: [12] }), "20 % (was 10)", "the reference was not measured this time");
  t.equal(
    of("alone", { ours: [12], reference: [200] }),
    "20 % (was 10)",
    "the reference was not measured last time",
  );

  const waiting = (samples: Figure["samples"]) =>
    lostIn("row", { what: "time", unit: "", better: "less", waits: true, samples }, kept);
  t.equal(waiting({ ours: [9], reference: [50] }), "", "only the reference became faster");
  t.equal(waiting({ ours: [12], reference: [50] }), "140 % (was 0.1x reference)");
  t.equal(waiting({ ours: [20], reference: [200] }), "", "the machine is half as fast");
});

t.test("a target of at most so much, or so much of the reference", async (t) => {
  const { reached } = atMost(2, "ms", 0.1);
  t.equal(reached({ ours: 2 }), true);
  t.equal(reached({ ours: 2.1 }), false, "without a reference");
  t.equal(reached({ ours: 3, reference: 31 }), true);
  t.equal(reached({ ours: 3, reference: 29 }), false);
});
