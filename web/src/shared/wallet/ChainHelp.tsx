import { Group, Stack } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { CopyText } from "../../components/CopyText.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { KeyValues, Note } from "../../components/Layout.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { chainParameters, switchChain } from "../../lib/wallet/chain.ts";
import type { Connection } from "../../lib/wallet/connection.ts";
import { isRejection, walletError } from "../../lib/wallet/provider.ts";
import type { NetworkInfo } from "../../lib/wire.ts";

interface ChainHelpProps {
  connection: Connection;
  network: NetworkInfo;
  /** Shown beside the switch button where continuing without the switch is possible. */
  children?: ReactNode;
}

/** The wallet is on another chain: a button to switch, and the parameters for doing it by hand. */
export function ChainHelp({ connection, network, children }: ChainHelpProps): ReactNode {
  const [isSwitching, setSwitching] = useState(false);
  const [problem, setProblem] = useState<"declined" | Error>();
  const parameters = chainParameters(network);

  const onSwitch = async (): Promise<void> => {
    setSwitching(true);
    setProblem(undefined);
    try {
      await switchChain(connection, network);
    } catch (error) {
      setProblem(isRejection(error) ? "declined" : walletError(error));
    } finally {
      setSwitching(false);
    }
  };

  return (
    <Note color="yellow">
      <Stack gap="sm">
        <p>
          <strong>Your wallet is on chain {connection.chainId}.</strong> This action needs{" "}
          {network.name} (chain {network.chainId}).
        </p>
        <Group>
          <PendingButton
            variant="filled"
            size="xs"
            pending={isSwitching && "Confirm in your wallet…"}
            onClick={() => void onSwitch()}
          >
            Switch to {network.name}
          </PendingButton>
          {children}
        </Group>
        {problem === "declined" && (
          <p role="status">You declined the switch. Your wallet stays on its network.</p>
        )}
        {problem instanceof Error && <ErrorNotice error={problem} />}
        <details>
          <summary>Add the network manually</summary>
          <KeyValues
            rows={[
              ["Name", network.name],
              ["Chain ID", network.chainId],
              ["RPC URL", <CopyText key="rpc" value={network.walletRpcUrl} what="RPC URL" />],
              ["Currency", parameters.nativeCurrency.symbol],
              ["Explorer", network.explorerUrl],
            ]}
          />
        </details>
      </Stack>
    </Note>
  );
}
