import { Text } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Note } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { atomic, toDecimal } from "../../lib/money.ts";
import type { Agent } from "../../lib/wire.ts";

/** Waits for money on this network, and says what arrived since it was opened. */
export const Arrival = ({ agent, network }: { agent: Agent; network: string }): ReactNode => (
  <Waiting
    key={network}
    balance={agent.balances.find((place) => place.network === network)?.balance ?? null}
  />
);

function Waiting({ balance }: { balance: string | null }): ReactNode {
  const [atFirst, setAtFirst] = useState(balance);
  // The chain could not be read when this was opened.
  if (atFirst === null && balance !== null) setAtFirst(balance);
  const grown = atFirst === null || balance === null ? 0n : atomic(balance) - atomic(atFirst);
  if (grown > 0n)
    return (
      <Note color="green">
        <span role="status">
          <Money amount={toDecimal(grown)} /> arrived.
        </span>
      </Note>
    );
  return (
    <Text c="dimmed" size="sm" role="status">
      Waiting for USDC. It shows here within seconds of its arrival.
    </Text>
  );
}
