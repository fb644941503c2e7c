import { Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Chart } from "../../components/Chart.tsx";
import { Columns, Note, Section, Stat, Stats } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { atomic, formatUsdc } from "../../lib/money.ts";
import { plural } from "../../lib/plural.ts";
import { labelsOf } from "../../lib/time.ts";
import type { Merchant } from "../../lib/wire.ts";
import styles from "./Merchant.module.css";

const integer = new Intl.NumberFormat("en");

export function MerchantNumbers({
  merchant,
  days,
}: {
  merchant: Merchant | undefined;
  days: string;
}): ReactNode {
  const totals = merchant?.totals;
  return (
    <Stats>
      <Stat label={`Volume in ${days} days`}>{totals && <Money amount={totals.volume} />}</Stat>
      <Stat
        label="Settled"
        note={totals && totals.pending > 0 ? `${integer.format(totals.pending)} pending` : null}
      >
        {totals && integer.format(totals.settled)}
      </Stat>
      <Stat label="Payers">{totals && integer.format(totals.payers)}</Stat>
      <Stat label="Failed">{totals && integer.format(totals.failed)}</Stat>
      <Stat label="Refunded" note={totals && plural(totals.refunds, "refund")}>
        {totals && <Money amount={totals.refunded} />}
      </Stat>
    </Stats>
  );
}

/** Cells of this service that did not answer. */
export function MissingCells({ cells }: { cells: readonly string[] }): ReactNode {
  if (cells.length === 0) return null;
  return (
    <Note color="yellow">
      {cells.length === 1 ? "A part" : "Parts"} of this service ({cells.join(", ")}) did not answer.
      The numbers and lists on this page are without the payments that were settled there.
    </Note>
  );
}

export function VolumePerDay({ merchant }: { merchant: Merchant }): ReactNode {
  const { days, totals } = merchant;
  const labels = labelsOf(
    days.map(({ day }) => day),
    "day",
  );
  const summary = `${formatUsdc(totals.volume)} USDC in ${plural(totals.settled, "settlement")} in ${plural(days.length, "day")}.`;
  return (
    <Section title="Volume per day" hint={`${summary} Days are UTC.`}>
      <Chart
        summary={summary}
        name="Volume"
        kind="usdc"
        bars={days.map(({ volume }, index) => ({
          label: labels[index] ?? "",
          value: atomic(volume),
        }))}
      />
    </Section>
  );
}

/** Failed settlements, and payments that were refused before settlement. */
export function WhyFailed({ merchant }: { merchant: Merchant }): ReactNode {
  return (
    <Columns>
      <Reasons
        title="Failed settlements"
        hint="Payments that were accepted and then not paid."
        none="No failed settlements."
        reasons={merchant.failures}
      />
      <Reasons
        title="Refused payments"
        hint="Payments that verify or settle refused, counted per hour."
        none="No refused payments."
        reasons={merchant.refusals}
      />
    </Columns>
  );
}

function Reasons({
  title,
  hint,
  none,
  reasons,
}: {
  title: string;
  hint: string;
  none: string;
  reasons: Merchant["failures"];
}): ReactNode {
  return (
    <Section flush title={title} hint={hint}>
      {reasons.length === 0 && (
        <Text c="dimmed" size="sm">
          {none}
        </Text>
      )}
      <ul>
        {reasons.map(({ reason, message, fix, count, lastAt }) => (
          <li key={reason} className={`list-row ${styles.reason}`}>
            <div>
              <p>{message}</p>
              {fix !== null && <p className={styles.fix}>{fix}</p>}
              <code>{reason}</code>
            </div>
            <div className={styles.count}>
              <strong>{integer.format(count)}</strong>
              <Text span c="dimmed" size="sm">
                <TimeAgo iso={lastAt} />
              </Text>
            </div>
          </li>
        ))}
      </ul>
    </Section>
  );
}
