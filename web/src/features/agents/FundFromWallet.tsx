import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Address, TxHash } from "../../components/Address.tsx";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { KeyValues, Muted, Note, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { ApiError } from "../../lib/api.ts";
import { atomic, formatUsdc, parseUsdc } from "../../lib/money.ts";
import { invalidate, keys } from "../../lib/query-keys.ts";
import { type Connection, useConnection } from "../../lib/wallet/connection.ts";
import { isRejection, walletError } from "../../lib/wallet/provider.ts";
import type { Agent, NetworkInfo, ServiceInfo } from "../../lib/wire.ts";
import { useExplorer } from "../../shared/info/use-info.ts";
import { ChainHelp } from "../../shared/wallet/ChainHelp.tsx";
import { WalletPicker } from "../../shared/wallet/WalletPicker.tsx";
import { fetchOwnBalance, fund, FundingError, type FundResult, settle } from "./fund.ts";

interface FundProps {
  agent: Agent;
  info: ServiceInfo;
  network: NetworkInfo;
}

export function FundFromWallet(props: FundProps): ReactNode {
  const connection = useConnection();
  if (!connection) {
    return (
      <Stack gap={3}>
        <p>Connect the wallet you signed in with.</p>
        <WalletPicker />
      </Stack>
    );
  }
  if (connection.chainId !== props.network.chainId)
    return <ChainHelp connection={connection} network={props.network} />;
  return <FundForm {...props} connection={connection} />;
}

function FundForm({
  agent,
  info,
  network,
  connection,
}: FundProps & { connection: Connection }): ReactNode {
  const explorer = useExplorer(agent.network);
  const [amount, setAmount] = useState("");
  const [error, setError] = useState<string>();
  const { data: own } = useQuery({
    queryKey: keys.ownBalance(network.id),
    queryFn: ({ signal }) => fetchOwnBalance(network.id, signal),
    retry: false,
  });
  const balance = own?.balance ?? null;

  const pay = useMutation<
    FundResult,
    unknown,
    { amountAtomic: bigint } | { again: FundResult & { kind: "pending" } }
  >({
    mutationFn: (request) =>
      "again" in request
        ? settle(request.again.body)
        : fund({
            info,
            network,
            connection,
            to: agent.walletAddress,
            amountAtomic: request.amountAtomic,
          }),
    onSuccess: invalidate.afterPayment,
  });

  const onSubmit = (event: React.FormEvent): void => {
    event.preventDefault();
    if (pay.isPending) return;
    const amountAtomic = parseUsdc(amount);
    if (amountAtomic === undefined || amountAtomic === 0n)
      setError("An amount such as 5 or 0.25, with at most 6 decimals.");
    else if (balance !== null && amountAtomic > atomic(balance))
      setError(`Your wallet holds ${formatUsdc(balance)} USDC.`);
    else pay.mutate({ amountAtomic });
  };

  return (
    <form onSubmit={onSubmit} noValidate>
      <Stack gap={4}>
        <KeyValues
          rows={[
            ["From", <Address key="from" value={connection.address} copy={false} />],
            ["It holds", <Money key="holds" amount={balance} />],
            [
              "To",
              <Address key="to" value={agent.walletAddress} copy={false} label={agent.name} />,
            ],
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
        <FundOutcome
          result={pay.data}
          error={pay.error}
          explorer={explorer}
          onAgain={(again) => {
            pay.mutate({ again });
          }}
        />
        <Button
          type="submit"
          variant="primary"
          pending={pay.isPending && "Answer in your wallet, then wait for the chain…"}
        >
          Sign and send
        </Button>
        <Muted>
          {info.facilitator.requiresKey
            ? "Your wallet sends the transfer and pays its gas."
            : "You sign a transfer of exactly this amount to exactly this address. Purser relays it and pays the gas."}
        </Muted>
      </Stack>
    </form>
  );
}

function FundOutcome({
  result,
  error,
  explorer,
  onAgain,
}: {
  result: FundResult | undefined;
  error: unknown;
  explorer: string | undefined;
  onAgain: (pending: FundResult & { kind: "pending" }) => void;
}): ReactNode {
  if (error !== null && isRejection(error))
    return <Note>You declined in your wallet. Nothing was moved.</Note>;
  if (error !== null) {
    const isOurs = error instanceof ApiError || error instanceof FundingError;
    return (
      <ErrorNotice
        title="The transfer did not go through"
        error={isOurs ? error : walletError(error)}
      />
    );
  }
  if (!result) return null;
  if (result.kind === "pending") {
    return (
      <Note>
        <Stack gap={2}>
          <span role="status">
            The transfer was sent and is not final yet. Asking again cannot send it twice.
          </span>
          <Button
            size="small"
            onClick={() => {
              onAgain(result);
            }}
          >
            Ask again
          </Button>
        </Stack>
      </Note>
    );
  }
  return (
    <Note tone="ok">
      <span role="status">
        {result.kind === "done" ? "Settled. " : "Sent; the balance follows when the chain has it. "}
      </span>
      <TxHash value={result.txHash} explorerUrl={explorer} />
    </Note>
  );
}
