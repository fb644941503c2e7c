import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Stat, Stats } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { formatDurationMs } from "../../lib/time.ts";
import { infoQuery } from "../../shared/info.ts";
import styles from "./landing.module.css";

const integer = new Intl.NumberFormat("en");

/** Current numbers of this service. */
export function LiveFacts(): ReactNode {
  const { data, error, refetch } = useQuery({ ...infoQuery, refetchInterval: 3_000 });
  if (error && !data)
    return (
      <ErrorNotice
        title="Live numbers could not be read"
        error={error}
        onRetry={() => void refetch()}
      />
    );
  const network = data?.networks[0];
  const facilitator = data?.facilitator.addresses[0];
  const height = network?.blockHeight;
  return (
    <section className={styles.facts} aria-label="Live numbers of this service">
      <Stats>
        <Stat
          label={network ? `${network.name}, block` : "Block"}
          note={network ? `Chain ${network.chainId}` : undefined}
        >
          {network ? (
            height === null || height === undefined ? (
              "not reachable"
            ) : (
              integer.format(BigInt(height))
            )
          ) : (
            <Skeleton shape="figure" />
          )}
        </Stat>
        <Stat
          label="Settled in 24 h"
          note={data ? `${integer.format(data.last24h.blocked)} blocked by a rule` : undefined}
        >
          {data ? integer.format(data.last24h.settled) : <Skeleton shape="figure" />}
        </Stat>
        <Stat label="Volume in 24 h">
          {data ? <Money amount={data.last24h.volume} /> : <Skeleton shape="figure" />}
        </Stat>
        <Stat label="Median time to settle">
          {data ? (
            data.last24h.medianSettleMs === null ? (
              "–"
            ) : (
              formatDurationMs(data.last24h.medianSettleMs)
            )
          ) : (
            <Skeleton shape="figure" />
          )}
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
