import { useQuery } from "@tanstack/react-query";
import type { NetworkInfo, ServiceInfo } from "../../lib/wire.ts";
import { findNetwork, infoQuery } from "./api.ts";

export const useInfo = (): ServiceInfo | undefined => useQuery(infoQuery).data;

/** The network with this id; without one, the agents' default. */
export function useNetwork(id?: string): NetworkInfo | undefined {
  const info = useInfo();
  return id === undefined ? info?.networks[0] : findNetwork(info, id);
}

/** Where to look a transaction up. The local chain has no explorer, and a dead link helps nobody. */
export function useExplorer(id?: string): string | undefined {
  const info = useInfo();
  const network = useNetwork(id);
  return info?.localWorld === true ? undefined : network?.explorerUrl;
}
