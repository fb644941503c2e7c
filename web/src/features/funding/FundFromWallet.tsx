import { Stack, Text } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { AmountInput } from "../../components/AmountInput.tsx";
import { KeyValues } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { type Connection, useConnection } from "../../lib/wallet/connection.ts";
import type { Agent, NetworkInfo, ServiceInfo } from "../../lib/wire.ts";
import { useExplorer } from "../../shared/info.ts";
import { ToSign } from "../../shared/signing/ToSign.tsx";
import { ChainHelp } from "../../shared/wallet/ChainHelp.tsx";
import { WalletPicker } from "../../shared/wallet/WalletPicker.tsx";
import { FundOutcome } from "./FundOutcome.tsx";
import { useFund } from "./use-fund.ts";

interface FundProps {
  agent: Agent;
  info: ServiceInfo;
  network: NetworkInfo;
}

export function FundFromWallet(props: FundProps): ReactNode {
  const connection = useConnection();
  if (connection?.wallet.kind === "passkey" || !connection) {
    return (
      <Stack gap="sm">
        <p>Connect your wallet.</p>
        <WalletPicker withoutPasskey />
      </Stack>
    );
  }
  if (connection.chainId !== props.network.chainId)
    return <ChainHelp connection={connection} network={props.network} />;
  return <FundForm {...props} connection={connection} />;
}

/** Funds the agent from the owner's wallet: an amount, and one signature. */
function FundForm({
  agent,
  info,
  network,
  connection,
}: FundProps & { connection: Connection }): ReactNode {
  const explorer = useExplorer(network.id);
  const [amount, setAmount] = useState("");
  const [error, setError] = useState<string>();
  const to = agent.walletAddress;
  const { balance, toSign, pay, send } = useFund({ info, network, connection, to });
  const onSubmit = (event: React.FormEvent): void => {
    event.preventDefault();
    if (!pay.isPending) setError(send(amount));
  };
  return (
    <form onSubmit={onSubmit} noValidate>
      <Stack>
        <KeyValues
          rows={[
            ["From", <Address key="from" value={connection.address} copy={false} />],
            ["Balance", <Money key="holds" amount={balance} />],
            ["To", <Address key="to" value={to} copy={false} label={agent.name} />],
          ]}
        />
        <AmountInput
          label="Amount"
          required
          value={amount}
          error={error}
          onChange={(next) => {
            setAmount(next);
            setError(undefined);
          }}
        />
        {toSign && <ToSign typedData={toSign} />}
        <FundOutcome
          result={pay.data}
          error={pay.error}
          explorer={explorer}
          onAgain={(again) => {
            pay.mutate({ again });
          }}
        />
        <PendingButton
          type="submit"
          variant="filled"
          pending={pay.isPending && "Confirm in your wallet, then wait for the chain…"}
        >
          Sign and send
        </PendingButton>
        <Text span c="dimmed" size="sm">
          {info.facilitator.requiresKey
            ? "Your wallet sends the transfer and pays its gas."
            : "You sign a transfer of exactly this amount to exactly this address. Purser relays it and pays the gas."}
        </Text>
      </Stack>
    </form>
  );
}
