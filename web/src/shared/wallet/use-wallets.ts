import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { queryClient } from "../../lib/query-client.ts";
import { signerOf } from "../../lib/session.ts";
import { useInstalledWallets } from "../../lib/wallet/discovery.ts";
import type { Wallet } from "../../lib/wallet/provider.ts";
import { passkeyObstacle } from "../../lib/webauthn.ts";
import { localInfoQuery, useInfo } from "../info.ts";
import { passkeysQuery } from "../session/api.ts";
import { useSession } from "../session/session-context.ts";

/** All that may sign. The passkey is first for a user who signed in with one, and last for the owner's wallet. */
export function useWallets({ withoutPasskey = false } = {}): readonly Wallet[] {
  const wallets = useRealWallets();
  const isFirst = useSession().session?.signedInWith === "passkey";
  const passkey = useOwnPasskey(!withoutPasskey);
  return useMemo(() => {
    if (!passkey) return wallets;
    return isFirst ? [passkey, ...wallets] : [...wallets, passkey];
  }, [isFirst, passkey, wallets]);
}

/** Those that may be found without a press: a passkey only for a user who signed in with one. */
export function useKnownWallets(): readonly Wallet[] {
  const wallets = useRealWallets();
  const passkey = useOwnPasskey(useSession().session?.signedInWith === "passkey");
  return useMemo(() => (passkey ? [passkey, ...wallets] : wallets), [passkey, wallets]);
}

/** The passkeys that sign for this account, as one wallet. Undefined if there are none here. */
export function useOwnPasskey(isWanted = true): Wallet | undefined {
  const info = useInfo();
  const { session } = useSession();
  const domain = info?.passkeys?.domain;
  const isOwner = isWanted && session?.second === null;
  const isBeside = isOwner && session.signedInWith === "wallet" && info && !passkeyObstacle(info);
  const listed = useQuery({ ...passkeysQuery, enabled: isBeside === true }).data?.passkeys ?? [];
  const mayUse =
    isOwner &&
    (session.signedInWith === "passkey" ||
      (isBeside === true && listed.some(({ status }) => status === "active")));
  const address = mayUse ? signerOf(session) : undefined;
  return useMemo(() => {
    if (address === undefined || domain === undefined) return undefined;
    return {
      id: "purser-passkey",
      name: "Passkey",
      icon: undefined,
      kind: "passkey",
      open: async () => {
        const { passkeyProvider } = await import("../../lib/wallet/passkey.ts");
        return passkeyProvider({ address }, domain);
      },
    };
  }, [address, domain]);
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
