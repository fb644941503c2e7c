import { lazy, type ReactNode, Suspense, useEffect } from "react";
import { useSigning } from "../../lib/orders/signing.ts";
import { loadPart } from "../../lib/reachable.ts";
import { setKnownWallets, useConnection } from "../../lib/wallet/connection.ts";
import { showsOrders } from "../../lib/wallet/provider.ts";
import { useKnownWallets } from "../wallet/use-wallets.ts";

const SigningDialog = lazy(() => loadPart(() => import("./SigningDialog.tsx")));

/** Present on every owner's screen; the dialog is loaded when there is something to sign. */
export function SigningHost(): ReactNode {
  const signing = useSigning();
  const connection = useConnection();
  const wallets = useKnownWallets();
  useEffect(() => {
    setKnownWallets(wallets);
  }, [wallets]);
  if (!signing) return null;
  // The demo wallet signs at once in the page, and a passkey's own window stands before it: a dialog would only flash.
  const isWithoutWindow = connection !== null && !showsOrders(connection.wallet);
  if (isWithoutWindow && signing.step !== "review") return null;
  return (
    <Suspense fallback={null}>
      <SigningDialog signing={signing} />
    </Suspense>
  );
}
