import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Stat, Stats } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { formatDurationMs } from "../../lib/time.ts";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { infoQuery } from "../../shared/info.ts";
import styles from "./landing.module.css";

const integer = new Intl.NumberFormat("en");

/** Current numbers of this service. */
export function LiveFacts(): ReactNode {
  const query = useQuery({ ...infoQuery, refetchInterval: 3_000 });
  const { data } = query;
  if (query.error && !data)
    return <QueryStatus query={query} what="numbers" failed="Live numbers could not be read" />;
  const network = data?.networks[0];
  const facilitator = data?.facilitator.addresses[0];
  const day = data?.last24h;
  return (
    <section className={styles.facts} aria-label="Live numbers of this service">
      <Stats>
        <Stat
          label={network ? `${network.name}, block` : "Block"}
          note={network && `Chain ${network.chainId}`}
        >
          {network &&
            (network.blockHeight === null
              ? "not reachable"
              : integer.format(BigInt(network.blockHeight)))}
        </Stat>
        <Stat
          label="Settled in 24 h"
          note={day && `${integer.format(day.blocked)} blocked by a rule`}
        >
          {day && integer.format(day.settled)}
        </Stat>
        <Stat label="Volume in 24 h">{day && <Money amount={day.volume} />}</Stat>
        <Stat label="Median time to settle">
          {day && (day.medianSettleMs === null ? "–" : formatDurationMs(day.medianSettleMs))}
        </Stat>
      </Stats>
      <p className={styles.facilitator}>
        {facilitator !== undefined && (
          <>
            Facilitator <Address value={facilitator} />
          </>
        )}
      </p>
    </section>
  );
}
