import { EmptyState } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Chart } from "../../components/Chart.tsx";
import { Note, Section, Stat, Stats } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { atomic, formatUsdc } from "../../lib/money.ts";
import { plural } from "../../lib/plural.ts";
import { formatDay } from "../../lib/time.ts";
import { dailyQuery, type SpendingRange } from "./api.ts";
import { addDays, listDays } from "./period.ts";

/** The totals of the period, and a bar for each of its days. */
export function SpendingTotals({ range }: { range: SpendingRange }): ReactNode {
  const query = useQuery(dailyQuery(range));
  const { data } = query;
  const total = data?.total;
  const isEmpty = total?.payments === 0 && total.refunded === "0";
  const ofDay = new Map(data?.items.map((item) => [item.key, item.charged]));
  const days = listDays(range);
  const until = formatDay(addDays(range.to, -1));
  const summary =
    total &&
    `${formatUsdc(total.charged)} USDC in ${plural(total.payments, "payment")}, ${formatDay(range.from)} to ${until}.`;
  return (
    <>
      <Stats>
        <Stat label="Spent">{total && <Money amount={total.charged} />}</Stat>
        <Stat label="Payments">{total?.payments.toLocaleString("en")}</Stat>
        <Stat label="Refunded" note="Not subtracted">
          {total && <Money amount={total.refunded} />}
        </Stat>
        <Stat label="Not decided yet" note={data && plural(data.open.payments, "payment")}>
          {data && <Money amount={data.open.amount} />}
        </Stat>
      </Stats>
      {data && data.chargeNotKnown > 0 && (
        <Note color="yellow">
          {plural(data.chargeNotKnown, "payment")} through a channel cannot be counted: nothing
          shows what the seller charged.
        </Note>
      )}
      <Section title="By day" hint={summary && `${summary} Days are UTC.`}>
        {!data && (
          <QueryStatus query={query} what="the chart" failed="The chart could not be loaded">
            <Skeleton shape="chart" />
          </QueryStatus>
        )}
        {total && isEmpty && (
          <EmptyState
            title="Nothing spent in this time"
            description="Payments appear here when they have settled."
          />
        )}
        {summary && !isEmpty && (
          <Chart
            summary={summary}
            name="Spent"
            kind="usdc"
            bars={days.map((day) => ({
              label: formatDay(day),
              value: atomic(ofDay.get(day) ?? "0"),
            }))}
          />
        )}
      </Section>
    </>
  );
}
