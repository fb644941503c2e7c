import type { ReactNode } from "react";
import { Stack } from "../../components/Layout.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { useConnection } from "../../lib/wallet/connection.ts";
import { useNetwork } from "../info.ts";
import { WalletPicker } from "../wallet/WalletPicker.tsx";
import { SignStep } from "./SignStep.tsx";

/** Connect, then sign. Used as a screen, and in the dialog that asks to sign in again. */
export function SignIn({
  expected,
}: {
  /** Whose session just ended, if one did. */ expected?: string;
}): ReactNode {
  const connection = useConnection();
  const network = useNetwork();
  if (!network)
    return (
      <Loading label="networks">
        <Skeleton shape="row" count={2} />
      </Loading>
    );
  return (
    <Stack gap={4}>
      {connection ? (
        <SignStep connection={connection} network={network} expected={expected} />
      ) : (
        <WalletPicker />
      )}
    </Stack>
  );
}
