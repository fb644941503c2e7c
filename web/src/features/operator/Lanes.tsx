import { Badge } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Section } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { plural } from "../../lib/plural.ts";
import type { OperatorOverview } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { Row } from "./Row.tsx";
import { count, spanOf } from "./words.ts";

type Lane = OperatorOverview["lanes"][number];

export function Lanes({ overview }: { overview: OperatorOverview }): ReactNode {
  const nameOf = useNetworkNames();
  return (
    <Section flush title="Relayers" hint="The accounts that send transactions and pay the gas.">
      <ul>
        {overview.lanes.map((lane) => (
          <Row
            key={`${lane.network}${lane.address}`}
            title={
              <>
                <Address value={lane.address} />
                {lane.onlyChannels && <Badge>Channels</Badge>}
                {!lane.configured && <Badge color="yellow">Not configured</Badge>}
              </>
            }
            detail={detailOf(lane, nameOf(lane.network))}
          >
            <span>
              {lane.balance === null ? "Balance not known" : <Money amount={lane.balance} />}
            </span>
            <State lane={lane} />
          </Row>
        ))}
      </ul>
    </Section>
  );
}

function State({ lane: { oldest, holder, paysFor } }: { lane: Lane }): ReactNode {
  if (paysFor === 0) return <Badge color="red">No gas</Badge>;
  if (oldest && oldest.seconds > 120) return <Badge color="red">Stuck</Badge>;
  return holder === null ? <Badge>Idle</Badge> : <Badge color="green">Sends</Badge>;
}

function detailOf(lane: Lane, network: string): string {
  const { paysFor, nextNonce, holder, inFlight, oldest, onlyChannels } = lane;
  return [
    network,
    paysFor !== null &&
      `pays for ${count(paysFor)} more ${onlyChannels ? "withdrawals" : "payments"}`,
    `next nonce ${nextNonce}`,
    holder !== null && `sent by ${holder}`,
    inFlight > 0 && `${inFlight} in flight`,
    oldest &&
      `oldest: nonce ${oldest.nonce}, ${spanOf(oldest.seconds)}, ${plural(oldest.attempts, "attempt")}`,
    oldest?.error && `last answer: ${oldest.error}`,
  ]
    .filter(Boolean)
    .join(" · ");
}
