import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { ApiError } from "./api.ts";
import { onReachableAgain, untilReachable } from "./reachable.ts";
import { announceSessionLost } from "./session-signal.ts";

const onError = (error: unknown): void => {
  if (!(error instanceof ApiError)) return;
  if (error.code === "session_required") announceSessionLost();
  if (error.isUnreachable) void untilReachable();
};

/** A short outage is retried twice within about a second; a refusal is not retried. */
const retry = (failures: number, error: unknown): boolean =>
  error instanceof ApiError && error.isOutage && failures < 2;

export const queryClient = new QueryClient({
  queryCache: new QueryCache({ onError }),
  mutationCache: new MutationCache({ onError }),
  defaultOptions: {
    queries: {
      retry,
      retryDelay: (failures) => 400 * 2 ** failures,
      staleTime: 10_000,
      networkMode: "always",
      refetchOnWindowFocus: true,
    },
    mutations: { retry: false, networkMode: "always" },
  },
});

onReachableAgain(() => void queryClient.invalidateQueries());
