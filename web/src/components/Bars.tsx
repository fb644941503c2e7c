import "@mantine/charts/styles.css";
import { BarChart } from "@mantine/charts";
import type { ReactNode } from "react";
import type { BarsProps } from "./Chart.tsx";

const amounts = new Intl.NumberFormat("en", { maximumFractionDigits: 6 });

export default function Bars({ data, series, stacked, unit }: BarsProps): ReactNode {
  return (
    <BarChart
      h={180}
      data={data}
      dataKey="label"
      type={stacked === true ? "stacked" : "default"}
      series={series.map(({ name, label, color }) => ({ name, label, color }))}
      tickLine="none"
      valueFormatter={(value) => `${amounts.format(value)}${unit === undefined ? "" : ` ${unit}`}`}
      barProps={{ radius: 2, isAnimationActive: false }}
      xAxisProps={{ interval: "preserveStartEnd", minTickGap: 24 }}
      yAxisProps={{ width: 44, tickFormatter: (value: number) => amounts.format(value) }}
      maxBarWidth={26}
    />
  );
}
