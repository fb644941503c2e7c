import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { ApiError } from "./api.ts";
import { announceSessionLost } from "./session-signal.ts";

const onError = (error: unknown): void => {
  if (error instanceof ApiError && error.code === "session_required") announceSessionLost();
};

/** Outages are worth a few quiet tries; a refusal is an answer. */
const retry = (failures: number, error: unknown): boolean =>
  error instanceof ApiError && error.isOutage && failures < 3;

export const queryClient = new QueryClient({
  queryCache: new QueryCache({ onError }),
  mutationCache: new MutationCache({ onError }),
  defaultOptions: {
    queries: { retry, staleTime: 10_000, networkMode: "always", refetchOnWindowFocus: true },
    mutations: { retry: false, networkMode: "always" },
  },
});
