import { useMemo } from "react";
import { queryClient } from "../../lib/query-client.ts";
import { useInstalledWallets } from "../../lib/wallet/discovery.ts";
import type { Wallet } from "../../lib/wallet/provider.ts";
import { localInfoQuery, useInfo } from "../info.ts";
import { useSession } from "../session/session-context.ts";

/**
 * The available wallets: the passkey of a user who signed in with one, the demo wallet of a local service, then the browser's.
 */
export function useWallets(): readonly Wallet[] {
  const wallets = useRealWallets();
  const domain = useInfo()?.passkeys?.domain;
  const { session } = useSession();
  const address = session?.signedInWith === "passkey" ? session.address : undefined;
  return useMemo(() => {
    if (address === undefined || domain === undefined) return wallets;
    const passkey: Wallet = {
      id: "purser-passkey",
      name: "Passkey",
      icon: undefined,
      kind: "passkey",
      open: async () => {
        const { passkeyProvider } = await import("../../lib/wallet/passkey.ts");
        return passkeyProvider({ address }, domain);
      },
    };
    return [passkey, ...wallets];
  }, [address, domain, wallets]);
}

/** Those with an account on the chain. */
function useRealWallets(): readonly Wallet[] {
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
