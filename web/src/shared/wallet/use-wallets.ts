import { useMemo } from "react";
import { queryClient } from "../../lib/query-client.ts";
import { useInstalledWallets } from "../../lib/wallet/discovery.ts";
import type { Wallet } from "../../lib/wallet/provider.ts";
import { localInfoQuery, useInfo } from "../info.ts";

/** The available wallets: the demo wallet of a local service first, then the browser's. */
export function useWallets(): readonly Wallet[] {
  const info = useInfo();
  const installed = useInstalledWallets();
  const chainId = info?.networks[0]?.chainId;
  return useMemo(() => {
    if (info?.localWorld !== true || chainId === undefined) return installed;
    const demo: Wallet = {
      id: "purser-demo",
      name: "Demo wallet",
      icon: undefined,
      kind: "demo",
      open: async () => {
        const [local, { demoProvider }] = await Promise.all([
          queryClient.fetchQuery(localInfoQuery),
          import("../../lib/wallet/demo.ts"),
        ]);
        return demoProvider(local, chainId);
      },
    };
    return [demo, ...installed];
  }, [info?.localWorld, chainId, installed]);
}
