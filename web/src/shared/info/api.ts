import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { LocalInfo, NetworkInfo, ServiceInfo } from "../../lib/wire.ts";

export const infoQuery = queryOptions({
  queryKey: keys.info,
  queryFn: ({ signal }) => api.get<ServiceInfo>("/api/info", { signal }),
  staleTime: 5_000,
});

/** Exists in the local world only; ask `ServiceInfo.localWorld` first. */
export const localInfoQuery = queryOptions({
  queryKey: keys.localInfo,
  queryFn: ({ signal }) => api.get<LocalInfo>("/api/local/info", { signal }),
  staleTime: Number.POSITIVE_INFINITY,
});

export const findNetwork = (
  info: ServiceInfo | undefined,
  id: string | undefined,
): NetworkInfo | undefined => info?.networks.find((network) => network.id === id);
