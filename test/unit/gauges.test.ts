// Goal: all gauges of a table show the same read, a read that fails leaves the last figures, and a row that is gone is
// not shown any more.
import { Registry } from "prom-client";
import t from "tap";
import { registerGauges } from "../../server/infra/telemetry.ts";

interface Task {
  labels: { task: string };
  due: number;
  oldest: number | undefined;
}

t.test("gauges of one table", async (t) => {
  let rows: Task[] | Error = [];
  let reads = 0;
  const registry = new Registry();
  registerGauges<Task>(registry, {
    labelNames: ["task"],
    async rows() {
      reads += 1;
      await Promise.resolve();
      if (rows instanceof Error) throw rows;
      return rows;
    },
    gauges: {
      due: ["Due jobs", ({ due }) => due],
      oldest: ["Their age", ({ oldest }) => oldest],
    },
  });
  const scrape = async () =>
    (await registry.metrics()).split("\n").filter((line) => /^[^#]/.test(line));
  t.same(await scrape(), []);
  rows = [
    { labels: { task: "a" }, due: 1, oldest: 10 },
    { labels: { task: "b" }, due: 0, oldest: undefined },
  ];
  const shown = ['due{task="a"} 1', 'due{task="b"} 0', 'oldest{task="a"} 10'];
  t.same(await scrape(), shown, "both from one read");
  t.equal(reads, 2);
  rows = new Error("no database");
  t.same(await scrape(), shown, "the last figures stay");
  rows = [{ labels: { task: "b" }, due: 2, oldest: 5 }];
  t.same(await scrape(), ['due{task="b"} 2', 'oldest{task="b"} 5']);
});
