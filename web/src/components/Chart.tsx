import { lazy, type ReactNode, Suspense } from "react";
import { loadPart } from "../lib/reachable.ts";
import type { BarsProps } from "./Bars.tsx";
import { Skeleton } from "./Skeleton.tsx";

const LazyBars = lazy(() => loadPart(() => import("./Bars.tsx")));

/**
 * Recharts is a large library: it is loaded when a chart is first shown, with a skeleton of the same size.
 */
export function Chart(props: BarsProps): ReactNode {
  return (
    <figure role="img" aria-label={props.summary}>
      <Suspense fallback={<Skeleton shape="chart" />}>
        <LazyBars {...props} />
      </Suspense>
    </figure>
  );
}
