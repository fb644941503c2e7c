// Goal: the metrics of several processes read as those of one: what counts is summed, the state of the database
// or of a lane is reported once, and the worst process is visible.
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import t from "tap";
import { mergeMetrics, type ProcessMetrics } from "../../server/infra/merged-metrics.ts";

interface Values {
  payments: number;
  queue: number;
  laneHeld: number;
  pool: number;
  memory: number;
  lag: number;
}

async function metricsOf(values: Values): Promise<ProcessMetrics> {
  const registers = [new Registry()];
  const gauge = (name: string, value: number): void => {
    new Gauge({ name, help: name, registers, aggregator: "average" }).set(value);
  };
  const labelNames = ["status"];
  new Counter({ name: "payments_total", help: "payments", labelNames, registers }).inc(
    { status: "settled" },
    values.payments,
  );
  new Histogram({ name: "seconds", help: "seconds", buckets: [1, 2], registers }).observe(1.5);
  gauge("purser_settlement_queue", values.queue);
  gauge("purser_lane_held", values.laneHeld);
  gauge("purser_database_pool_size", values.pool);
  gauge("process_resident_memory_bytes", values.memory);
  gauge("nodejs_eventloop_lag_p99_seconds", values.lag);
  return (await registers[0]?.getMetricsAsJSON()) ?? [];
}

t.test("two processes are read as one", async (t) => {
  const one = await metricsOf({
    payments: 3,
    queue: 7,
    laneHeld: 1,
    pool: 8,
    memory: 100,
    lag: 0.5,
  });
  const two = await metricsOf({
    payments: 4,
    queue: 7,
    laneHeld: 0,
    pool: 8,
    memory: 150,
    lag: 0.1,
  });
  const text = await mergeMetrics([one, two]).metrics();
  for (const line of [
    'payments_total{status="settled"} 7',
    'seconds_bucket{le="1"} 0',
    'seconds_bucket{le="2"} 2',
    "seconds_sum 3",
    "seconds_count 2",
    "purser_settlement_queue 7",
    "purser_lane_held 1",
    "purser_database_pool_size 16",
    "process_resident_memory_bytes 250",
    "nodejs_eventloop_lag_p99_seconds 0.5",
  ])
    t.ok(text.split("\n").includes(line), line);
});

t.test("of what is left the lowest is reported", async (t) => {
  const names = [
    "purser_lane_payments_left",
    "purser_lane_withdrawals_left",
    "purser_lane_balance",
    "purser_gas_share_left",
  ];
  const workers = [5, 2, 9].map((value) => {
    const registry = new Registry();
    for (const name of names) new Gauge({ name, help: name, registers: [registry] }).set(value);
    return registry.getMetricsAsJSON();
  });
  const text = await mergeMetrics(await Promise.all(workers)).metrics();
  for (const name of names) t.ok(text.split("\n").includes(`${name} 2`), name);
});

t.test("what was merged can be merged again", async (t) => {
  const values = { payments: 1, queue: 2, laneHeld: 0, pool: 4, memory: 10, lag: 0.1 };
  const first = await mergeMetrics([[], await metricsOf(values)]).getMetricsAsJSON();
  const text = await mergeMetrics([first, await metricsOf(values)]).metrics();
  for (const line of ['payments_total{status="settled"} 2', "seconds_count 2"])
    t.ok(text.split("\n").includes(line), line);
});
