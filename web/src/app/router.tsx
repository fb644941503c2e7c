import { createBrowserRouter, createPath, redirect, type RouteObject } from "react-router";
import { Loading, Skeleton } from "../components/Skeleton.tsx";
import { loadPart } from "../lib/reachable.ts";
import { BrokenPage, RouteError } from "./RouteError.tsx";
import { ConsentArea, LoadedScreen, OwnerArea, PublicArea } from "./Shell.tsx";
import { Unreachable } from "./Unreachable.tsx";

type Loaded = Promise<{ default: () => React.ReactNode }>;

/**
 * Each screen is its own chunk, loaded when it is visited. Until it has loaded, the screen before stays, with what was
 * typed there.
 */
const screen = (load: () => Loaded): Pick<RouteObject, "lazy"> => ({
  lazy: async () => ({ Component: (await loadPart(load, target)).default }),
});

/** The page that is being opened. */
function target(): string {
  const { navigation, location } = router.state;
  return new URL(createPath(navigation.location ?? location), globalThis.location.href).href;
}

/** A screen that fails or is still loading leaves the frame around it in place. */
const inside = (children: RouteObject[]): RouteObject[] => [
  {
    element: <LoadedScreen />,
    errorElement: <RouteError />,
    hydrateFallbackElement: (
      <Loading label="the page">
        <Skeleton shape="title" />
        <Skeleton shape="block" count={2} />
      </Loading>
    ),
    children,
  },
];

export const router = createBrowserRouter([
  {
    errorElement: <BrokenPage />,
    hydrateFallbackElement: <Unreachable />,
    children: [
      { path: "/", ...screen(() => import("./routes/landing.tsx")) },
      {
        element: <OwnerArea />,
        children: inside([
          { path: "/signin", loader: () => redirect("/agents") },
          { path: "/agents", ...screen(() => import("./routes/agents.tsx")) },
          { path: "/agents/new", ...screen(() => import("./routes/agent-new.tsx")) },
          {
            path: "/agents/:agentId",
            ...screen(() => import("./routes/agent.tsx")),
            children: [
              { index: true, ...screen(() => import("./routes/agent-activity.tsx")) },
              { path: "tasks", ...screen(() => import("./routes/agent-tasks.tsx")) },
              { path: "channels", ...screen(() => import("./routes/agent-channels.tsx")) },
              { path: "rules", ...screen(() => import("./routes/agent-rules.tsx")) },
              { path: "keys", ...screen(() => import("./routes/agent-keys.tsx")) },
              { path: "withdraw", ...screen(() => import("./routes/agent-withdraw.tsx")) },
              { path: "audit", ...screen(() => import("./routes/agent-audit.tsx")) },
            ],
          },
          { path: "/spending", ...screen(() => import("./routes/spending.tsx")) },
          { path: "/budgets", ...screen(() => import("./routes/budgets.tsx")) },
          { path: "/approvals", ...screen(() => import("./routes/approvals.tsx")) },
          { path: "/notifications/:part?", ...screen(() => import("./routes/notifications.tsx")) },
          { path: "/merchant", ...screen(() => import("./routes/merchant.tsx")) },
          { path: "/settings", ...screen(() => import("./routes/settings.tsx")) },
          { path: "/operator", ...screen(() => import("./routes/operator.tsx")) },
          { path: "/team", ...screen(() => import("./routes/team.tsx")) },
          { path: "/join", ...screen(() => import("./routes/join.tsx")) },
          { path: "/waiting", ...screen(() => import("./routes/waiting.tsx")) },
        ]),
      },
      {
        element: <ConsentArea />,
        children: inside([
          { path: "/oauth/authorize", ...screen(() => import("./routes/authorize.tsx")) },
        ]),
      },
      {
        element: <PublicArea />,
        children: inside([
          { path: "/marketplace", ...screen(() => import("./routes/marketplace.tsx")) },
          { path: "/marketplace/:listingId", ...screen(() => import("./routes/listing.tsx")) },
          { path: "/receipts/:receiptId", ...screen(() => import("./routes/receipt.tsx")) },
          { path: "/validate", ...screen(() => import("./routes/validate.tsx")) },
          { path: "/facilitator", ...screen(() => import("./routes/facilitator.tsx")) },
          { path: "/developers", ...screen(() => import("./routes/developers.tsx")) },
          { path: "/developers/errors", ...screen(() => import("./routes/errors.tsx")) },
          { path: "/unsubscribe", ...screen(() => import("./routes/unsubscribe.tsx")) },
          { path: "*", ...screen(() => import("./routes/not-found.tsx")) },
        ]),
      },
    ],
  },
]);
