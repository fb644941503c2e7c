/** Information about the service: its networks, its facilitator, and whether it is a local one. */
import { queryOptions, useQuery } from "@tanstack/react-query";
import { api } from "../lib/api.ts";
import { keys } from "../lib/query-keys.ts";
import type { LocalInfo, NetworkInfo, ServiceInfo } from "../lib/wire.ts";

export const infoQuery = queryOptions({
  queryKey: keys.info,
  queryFn: ({ signal }) => api.get<ServiceInfo>("/api/info", { signal }),
  staleTime: 5_000,
});

/** Exists only in a local service: check `ServiceInfo.localWorld` first. */
export const localInfoQuery = queryOptions({
  queryKey: keys.localInfo,
  queryFn: ({ signal }) => api.get<LocalInfo>("/api/local/info", { signal }),
  staleTime: Number.POSITIVE_INFINITY,
});

export const findNetwork = (
  info: ServiceInfo | undefined,
  id: string | undefined,
): NetworkInfo | undefined => info?.networks.find((network) => network.id === id);

export const useInfo = (): ServiceInfo | undefined => useQuery(infoQuery).data;

/** The network with this id, or the agents' default network. */
export function useNetwork(id?: string): NetworkInfo | undefined {
  const info = useInfo();
  return id === undefined ? info?.networks[0] : findNetwork(info, id);
}

/** The network of an order, by the chain id of its signed domain. */
export const useNetworkOfChain = (chainId: number): NetworkInfo | undefined =>
  useInfo()?.networks.find((network) => network.chainId === chainId);

/** The name of a network by its id, or the id itself. */
export function useNetworkNames(): (id: string) => string {
  const info = useInfo();
  return (id) => findNetwork(info, id)?.name ?? id;
}

/** The URL of the block explorer. A local chain has none, so no link is shown. */
export function useExplorer(id?: string): string | undefined {
  const info = useInfo();
  const network = useNetwork(id);
  return info?.localWorld === true ? undefined : network?.explorerUrl;
}
