import { lazy, type ReactNode, Suspense } from "react";
import type { BarsProps } from "./Bars.tsx";
import { Skeleton } from "./Skeleton.tsx";

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
