import { SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Chart } from "../../components/Chart.tsx";
import { Section } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { atomic, formatUsdc } from "../../lib/money.ts";
import { plural } from "../../lib/plural.ts";
import { labelsOf } from "../../lib/time.ts";
import { overviewQuery } from "./api.ts";

export function AgentCharts({ agentId }: { agentId: string }): ReactNode {
  const [span, setSpan] = useState<"24h" | "7d">("24h");
  const query = useQuery(overviewQuery(agentId));
  const { data } = query;
  const points = span === "24h" ? data?.hourly : data?.daily;
  const total = points?.reduce((sum, point) => sum + atomic(point.spent), 0n) ?? 0n;
  const count = points?.reduce((sum, point) => sum + point.count, 0) ?? 0;
  const blocked = points?.reduce((sum, point) => sum + point.blocked, 0) ?? 0;
  const labels = labelsOf(points?.map(({ at }) => at) ?? [], span === "24h" ? "hour" : "day");
  const period = span === "24h" ? "24 hours" : "7 days";
  const summary = `${formatUsdc(total)} USDC in ${plural(count, "payment")} in the last ${period}; ${blocked} blocked.`;
  return (
    <Section
      title="Spending"
      hint={
        points && `${summary} ${span === "7d" ? "Days are UTC." : "Hours are your local time."}`
      }
      actions={
        <SegmentedControl
          aria-label="Period"
          value={span}
          onChange={setSpan}
          data={[
            { value: "24h", label: "24 h" },
            { value: "7d", label: "7 d" },
          ]}
        />
      }
    >
      {!data && (
        <QueryStatus query={query} what="the chart" failed="The chart could not be loaded">
          <Skeleton shape="chart" />
        </QueryStatus>
      )}
      {points && (
        <Chart
          summary={summary}
          name="Spent"
          kind="usdc"
          bars={points.map((point, index) => ({
            label: labels[index] ?? "",
            value: atomic(point.spent),
          }))}
        />
      )}
    </Section>
  );
}
