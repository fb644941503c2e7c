/** Metrics of several processes as those of one. */
import {
  AggregatorRegistry,
  type MetricObjectWithValues,
  type MetricValue,
  type Registry,
} from "prom-client";

type Metric = MetricObjectWithValues<MetricValue<string>>;
export type ProcessMetrics = Metric[];

/** Gauges of which each process has a part of its own. */
const SUMMED_GAUGES =
  /^(purser_database_(pool_size|connections)|process_\w+_(bytes|fds)|nodejs_(active|heap|external)_\w+)$/;

/** Gauges of what is left: the lowest is the worst. */
const LEFT_GAUGES = /^purser_(lane_(payments_left|withdrawals_left|balance)|gas_share_left)$/;

/**
 * Everything that counts is summed. A gauge shows the database, the chain, a lane that one process holds, or the worst
 * process, so its maximum is taken, except for SUMMED_GAUGES and LEFT_GAUGES.
 */
export function mergeMetrics(processes: readonly ProcessMetrics[]): Registry {
  return AggregatorRegistry.aggregate(
    processes.map((metrics) =>
      metrics.map((metric) => ({
        ...metric,
        aggregator: aggregatorOf(metric),
      })),
    ),
  );
}

function aggregatorOf(metric: Metric): "sum" | "min" | "max" {
  if (isCounted(metric) || SUMMED_GAUGES.test(metric.name)) return "sum";
  return LEFT_GAUGES.test(metric.name) ? "min" : "max";
}

export const isCounted = ({ type }: Metric): boolean => String(type) !== "gauge";
