import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Stat, Stats } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { totalOf } from "../../lib/balances.ts";
import { atomic } from "../../lib/money.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { overviewQuery } from "./api.ts";

export function Totals(): ReactNode {
  const nameOf = useNetworkNames();
  const query = useQuery(overviewQuery());
  if (query.error && !query.data)
    return <QueryStatus query={query} what="totals" failed="Totals could not be loaded" />;
  const totals = query.data?.totals;
  const { known, silent } = totalOf(totals?.balances ?? []);
  // Shows the sum of the known balances, and names the networks that are missing.
  const isPartly = silent.length > 0 && silent.length < (totals?.balances.length ?? 0);
  return (
    <Stats>
      <Stat
        label="Balance of all agents"
        note={
          isPartly
            ? `not including ${silent.map(nameOf).join(", ")}, which cannot be read`
            : undefined
        }
      >
        {totals && <Money amount={isPartly ? known : totals.balance} />}
      </Stat>
      <Stat
        label="Spent in 24 h"
        note={
          totals && atomic(totals.reserved) > 0n ? (
            <>
              + <Money amount={totals.reserved} /> reserved
            </>
          ) : undefined
        }
      >
        {totals && <Money amount={totals.spent24h} />}
      </Stat>
      <Stat
        label="Blocked in 24 h"
        note={totals && (totals.blocked24h === 1 ? "payment" : "payments")}
      >
        {totals?.blocked24h}
      </Stat>
      <Stat label="Active agents" note={totals && `of ${totals.agents}`}>
        {totals?.activeAgents}
      </Stat>
    </Stats>
  );
}
