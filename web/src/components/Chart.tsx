import { lazy, type ReactNode, Suspense } from "react";
import { Skeleton } from "./Skeleton.tsx";

export interface ChartBar {
  label: string;
  /** Atomic units of money, or things counted. */
  value: bigint;
}

interface BarsProps {
  bars: ChartBar[];
  /** What a bar's length means. */
  name: string;
  kind: "usdc" | "count";
  /** What the picture says, in a sentence, for those who do not see it. */
  summary: string;
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
