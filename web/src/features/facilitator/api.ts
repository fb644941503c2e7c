import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { FacilitatorStats } from "../../lib/wire.ts";

export const facilitatorStatsQuery = queryOptions({
  queryKey: keys.facilitatorStats,
  queryFn: ({ signal }) => api.get<FacilitatorStats>("/api/x402/stats", { signal }),
  refetchInterval: 5_000,
});

interface Kind {
  x402Version: number;
  scheme: string;
  network: string;
}

export const supportedQuery = queryOptions({
  queryKey: keys.facilitatorKinds,
  queryFn: ({ signal }) =>
    api.get<{ kinds: Kind[]; extensions: string[] }>("/api/x402/supported", { signal }),
  staleTime: Number.POSITIVE_INFINITY,
});
