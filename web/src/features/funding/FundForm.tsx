import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Button } from "../../components/Button.tsx";
import { KeyValues, Muted, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { atomic, formatUsdc, parseUsdc } from "../../lib/money.ts";
import { invalidate, keys } from "../../lib/query-keys.ts";
import type { Connection } from "../../lib/wallet/connection.ts";
import type { Agent, NetworkInfo, ServiceInfo } from "../../lib/wire.ts";
import { useExplorer } from "../../shared/info/use-info.ts";
import { fetchOwnBalance, fund, type FundResult, type PendingFund, settle } from "./fund.ts";
import { FundOutcome } from "./FundOutcome.tsx";

export interface FundProps {
  agent: Agent;
  info: ServiceInfo;
  network: NetworkInfo;
}

/** From the owner's own wallet: an amount, and one signature. */
export function FundForm({
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

  const to = agent.walletAddress;
  const pay = useMutation<FundResult, unknown, { amountAtomic: bigint } | { again: PendingFund }>({
    mutationFn: (request) =>
      "again" in request
        ? settle(request.again.body)
        : fund({ info, network, connection, to, amountAtomic: request.amountAtomic }),
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
