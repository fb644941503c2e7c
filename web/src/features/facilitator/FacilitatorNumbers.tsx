import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Chart } from "../../components/Chart.tsx";
import { Section, Stat, Stats } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { atomic, formatUsdc } from "../../lib/money.ts";
import { plural } from "../../lib/plural.ts";
import { formatDurationMs, labelsOf } from "../../lib/time.ts";
import type { FacilitatorStats } from "../../lib/wire.ts";

const integer = new Intl.NumberFormat("en");
const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 2 });

export function FacilitatorNumbers({ stats }: { stats: FacilitatorStats | undefined }): ReactNode {
  const day = stats?.last24h;
  const duration = (ms: number | null): string => (ms === null ? "–" : formatDurationMs(ms));
  return (
    <Stats>
      <Stat label="Verified in 24 h">{day && integer.format(day.verified)}</Stat>
      <Stat
        label="Settled in 24 h"
        note={stats && `${integer.format(stats.allTime.settled)} in total`}
      >
        {day && integer.format(day.settled)}
      </Stat>
      <Stat label="Success rate" note={day && `${integer.format(day.failed)} failed`}>
        {day && (day.successRate === null ? "–" : percent.format(day.successRate))}
      </Stat>
      <Stat
        label="Median time to settle"
        note={
          day && day.p95SettleMs !== null ? `95 % within ${duration(day.p95SettleMs)}` : undefined
        }
      >
        {day && duration(day.medianSettleMs)}
      </Stat>
      <Stat label="Volume in 24 h">{day && <Money amount={day.volume} />}</Stat>
    </Stats>
  );
}

export function VolumeChart({ stats }: { stats: FacilitatorStats }): ReactNode {
  const total = stats.hourly.reduce((sum, { volume }) => sum + atomic(volume), 0n);
  const count = stats.hourly.reduce((sum, { settled }) => sum + settled, 0);
  const labels = labelsOf(
    stats.hourly.map(({ at }) => at),
    "hour",
  );
  const summary = `${formatUsdc(total)} USDC in ${plural(count, "settlement")} in the last 24 hours.`;
  return (
    <Section title="Volume" hint={`${summary} Hours are your local time.`}>
      <Chart
        summary={summary}
        name="Volume"
        kind="usdc"
        bars={stats.hourly.map(({ volume }, index) => ({
          label: labels[index] ?? "",
          value: atomic(volume),
        }))}
      />
    </Section>
  );
}

/** Authorizations that arrive together share one transaction, which makes them cheap. */
export function BatchChart({ stats }: { stats: FacilitatorStats }): ReactNode {
  const sizes = [...stats.batchSizes].sort((a, b) => a.size - b.size);
  const transactions = sizes.reduce((sum, { count }) => sum + count, 0);
  const payments = sizes.reduce((sum, { size, count }) => sum + size * count, 0);
  const summary =
    transactions === 0
      ? "No transactions in the last 24 hours."
      : `${plural(payments, "payment")} in ${plural(transactions, "transaction")}; the largest batch had ${sizes.at(-1)?.size}.`;
  return (
    <Section title="Payments per transaction" hint={summary}>
      {transactions === 0 ? (
        <Stack gap="sm">
          Payments that arrive at the same time share one transaction and its gas.
        </Stack>
      ) : (
        <Chart
          summary={summary}
          name="Transactions"
          kind="count"
          bars={sizes.map(({ size, count }) => ({ label: String(size), value: BigInt(count) }))}
        />
      )}
    </Section>
  );
}
