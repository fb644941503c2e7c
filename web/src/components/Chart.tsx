import { lazy, type ReactNode, Suspense } from "react";
import { Skeleton } from "./Skeleton.tsx";

export interface ChartBar {
  label: string;
  [series: string]: string | number;
}

export interface ChartSeries {
  name: string;
  label: string;
  color: string;
}

interface BarsProps {
  data: ChartBar[];
  series: ChartSeries[];
  /** What the picture says, in a sentence, for those who do not see it. */
  summary: string;
  stacked?: boolean;
  unit?: string;
}

const LazyBars = lazy(() => import("./Bars.tsx"));

/** Recharts is heavy: it loads when a chart is first shown, into a place that is already its size. */
export function Chart(props: BarsProps): ReactNode {
  return (
    <figure role="img" aria-label={props.summary}>
      <Suspense fallback={<Skeleton shape="chart" />}>
        <LazyBars {...props} />
      </Suspense>
    </figure>
  );
}

export type { BarsProps };
