import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { useConnection } from "../../lib/wallet/connection.ts";
import { ChainHelp } from "../../shared/wallet/ChainHelp.tsx";
import { WalletPicker } from "../../shared/wallet/WalletPicker.tsx";
import { FundForm, type FundProps } from "./FundForm.tsx";

export function FundFromWallet(props: FundProps): ReactNode {
  const connection = useConnection();
  if (!connection) {
    return (
      <Stack gap="sm">
        <p>Connect the wallet you signed in with.</p>
        <WalletPicker />
      </Stack>
    );
  }
  if (connection.chainId !== props.network.chainId)
    return <ChainHelp connection={connection} network={props.network} />;
  return <FundForm {...props} connection={connection} />;
}
