import { Badge, EmptyState, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Address, TxHash } from "../../components/Address.tsx";
import { ArrowIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import type { FacilitatorStats } from "../../lib/wire.ts";
import { useExplorer } from "../../shared/info.ts";
import styles from "./Facilitator.module.css";

export function Recent({ stats }: { stats: FacilitatorStats }): ReactNode {
  const explorer = useExplorer();
  return (
    <Section flush title="Recent settlements">
      {stats.recent.length === 0 && (
        <EmptyState title="No settlements yet" description="Settled payments appear here." />
      )}
      <ul>
        {stats.recent.map((row) => (
          <li key={row.id} className={`list-row ${styles.row}`}>
            <span className={styles.parties}>
              <Address value={row.from} copy={false} /> <ArrowIcon size={14} />
              <span className="sr-only">to</span> <Address value={row.to} copy={false} />
            </span>
            <span>
              <Badge
                color={
                  row.status === "settled"
                    ? "green"
                    : row.status === "failed" || row.status === "expired"
                      ? "red"
                      : "sea"
                }
              >
                <span className={styles.status}>{row.status}</span>
              </Badge>
            </span>
            <span className={styles.tx}>
              {row.txHash === null ? null : <TxHash value={row.txHash} explorerUrl={explorer} />}
            </span>
            <Text span c="dimmed" size="sm">
              <TimeAgo iso={row.createdAt} />
            </Text>
            <span className={styles.amount}>
              <Money amount={row.amount} />
            </span>
          </li>
        ))}
      </ul>
    </Section>
  );
}
