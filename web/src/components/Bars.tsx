import "@mantine/charts/styles.css";
import { BarChart } from "@mantine/charts";
import { useElementSize } from "@mantine/hooks";
import type { ReactNode } from "react";
import { forChart, UNIT } from "../lib/money.ts";
import { niceTicks } from "../lib/ticks.ts";

interface ChartBar {
  label: string;
  /** Atomic units of money, or a count. */
  value: bigint;
}

export interface BarsProps {
  bars: ChartBar[];
  /** The meaning of a bar's length. */
  name: string;
  kind: "usdc" | "count";
  /** A sentence that describes the chart for screen readers. */
  summary: string;
}

const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 6 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 6, notation: "compact" });

const KINDS = {
  usdc: { one: UNIT, draw: forChart, format: (value: number) => `${exact.format(value)} USDC` },
  count: { one: 1n, draw: Number, format: (value: number) => exact.format(value) },
};
const CHARACTER_WIDTH = 7;
const LABEL_GAP = 14;
const MARGIN = 5;

export default function Bars({ bars, name, kind }: BarsProps): ReactNode {
  const { ref, width } = useElementSize();
  const { one, draw, format } = KINDS[kind];
  const highest = bars.reduce((most, { value }) => (value > most ? value : most), 0n);
  // An empty chart has a scale up to one.
  const ticks = niceTicks(highest === 0n ? one : highest).map(draw);
  const longest = Math.max(...ticks.map((tick) => short.format(tick).length));
  const axisWidth = Math.max(28, longest * CHARACTER_WIDTH + 14);
  const labelWidth = CHARACTER_WIDTH * Math.max(...bars.map(({ label }) => label.length));
  const barWidth = Math.max(1, (width - axisWidth) / bars.length);
  // As many labels as have room, at equal distances. The last one is what people look for, so it always has one.
  const step = Math.ceil((labelWidth + LABEL_GAP) / barWidth);
  const labels = bars.filter((_, index) => (bars.length - 1 - index) % step === 0);
  return (
    <div ref={ref}>
      <BarChart
        h={180}
        data={bars.map(({ label, value }) => ({ label, value: draw(value) }))}
        dataKey="label"
        series={[{ name: "value", label: name, color: "var(--accent-2)" }]}
        tickLine="none"
        valueFormatter={format}
        barProps={{ radius: 2, isAnimationActive: false }}
        barChartProps={{
          margin: { right: Math.max(MARGIN, (labelWidth - barWidth) / 2), top: MARGIN },
        }}
        xAxisProps={{ interval: 0, ticks: labels.map(({ label }) => label) }}
        yAxisProps={{
          ticks,
          domain: [0, ticks.at(-1) ?? 1],
          interval: 0,
          width: axisWidth,
          tickFormatter: (value: number) => short.format(value),
        }}
        maxBarWidth={26}
      />
    </div>
  );
}
