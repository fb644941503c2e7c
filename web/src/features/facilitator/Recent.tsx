import type { ReactNode } from "react";
import { Address, TxHash } from "../../components/Address.tsx";
import { Badge } from "../../components/Badge.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
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
        <EmptyState title="No settlements yet">Settled payments appear here.</EmptyState>
      )}
      <ul>
        {stats.recent.map((row) => (
          <li key={row.id} className={styles.row}>
            <span className={styles.parties}>
              <Address value={row.from} copy={false} /> <ArrowIcon size={14} />
              <span className="sr-only">to</span> <Address value={row.to} copy={false} />
            </span>
            <span>
              <Badge
                tone={
                  row.status === "settled"
                    ? "ok"
                    : row.status === "failed" || row.status === "expired"
                      ? "bad"
                      : "accent"
                }
              >
                <span className={styles.status}>{row.status}</span>
              </Badge>
            </span>
            <span className={styles.tx}>
              {row.txHash === null ? null : <TxHash value={row.txHash} explorerUrl={explorer} />}
            </span>
            <span className={styles.time}>
              <TimeAgo iso={row.createdAt} />
            </span>
            <span className={styles.amount}>
              <Money amount={row.amount} />
            </span>
          </li>
        ))}
      </ul>
    </Section>
  );
}
