import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Section } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { atomic, perMille } from "../../lib/money.ts";
import { plural } from "../../lib/plural.ts";
import type { Spending } from "../../lib/wire.ts";
import { type SpendingBy, type SpendingRange, spendingQuery } from "./api.ts";
import styles from "./Spending.module.css";

type Item = Spending["items"][number];

interface SpendingTableProps {
  by: Exclude<SpendingBy, "day">;
  title: string;
  range: SpendingRange;
  /** A press on a row shows only its payments. */
  onChoose: (key: string) => void;
}

/** Sums by payee, site, agent or task, the largest first, and the rest of them in one row. */
export function SpendingTable({ by, title, range, onChoose }: SpendingTableProps): ReactNode {
  const query = useInfiniteQuery(spendingQuery(by, range));
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = query;
  const pages = query.data?.pages ?? [];
  const last = pages.at(-1);
  const items = pages.flatMap((page) => page.items);
  const total = atomic(last?.total.charged ?? "0");
  // The totals above say that nothing was spent.
  if (last && items.length === 0) return null;
  // Most agents open no tasks.
  if (by === "task" && !items.some(({ key }) => key !== null)) return null;
  return (
    <Section flush title={title}>
      <QueryStatus query={query} what={title.toLowerCase()} failed="The sums could not be loaded">
        <Skeleton shape="row" count={3} />
      </QueryStatus>
      {items.length > 0 && (
        <ul>
          {items.map((item) => (
            <Row key={item.key} by={by} item={item} total={total} onChoose={onChoose} />
          ))}
          {last?.others && (
            <li className={`list-row ${styles.row}`}>
              <span className={styles.name}>{last.others.rows.toLocaleString("en")} more</span>
              <span className={styles.amount}>
                <Money amount={last.others.charged} />
              </span>
              <span className={styles.meta}>{plural(last.others.payments, "payment")}</span>
            </li>
          )}
        </ul>
      )}
      {hasNextPage && (
        <PendingButton
          pending={isFetchingNextPage && "Loading…"}
          onClick={() => void fetchNextPage()}
        >
          Show more<span className="sr-only"> of {title.toLowerCase()}</span>
        </PendingButton>
      )}
    </Section>
  );
}

interface RowProps {
  by: SpendingBy;
  item: Item;
  total: bigint;
  onChoose: (key: string) => void;
}

function Row({ by, item, total, onChoose }: RowProps): ReactNode {
  const { key, charged, refunded, payments } = item;
  const name = nameOf(by, item);
  return (
    <li className={`list-row ${styles.row}`}>
      {key === null ? (
        <span className={styles.name}>{name}</span>
      ) : (
        <button
          type="button"
          className={`row-link ${styles.open}`}
          title={key}
          onClick={() => {
            onChoose(key);
          }}
        >
          {name}
        </button>
      )}
      <span className={styles.amount}>
        <Money amount={charged} />
      </span>
      <span className={styles.meta}>{plural(payments, "payment")}</span>
      <span className={styles.refund}>
        {refunded !== "0" && (
          <>
            <Money amount={refunded} /> refunded
          </>
        )}
      </span>
      <svg className={styles.share} height="4" width="100%" aria-hidden="true">
        <rect className={styles.track} width="100%" height="4" rx="2" />
        <rect
          className={styles.part}
          width={`${perMille(atomic(charged), total) / 10}%`}
          height="4"
          rx="2"
        />
      </svg>
    </li>
  );
}

function nameOf(by: SpendingBy, { key, name }: Item): string {
  if (key === null) return by === "task" ? "Without a task" : "Without a site";
  if (by === "site") return key.replace(/^https:\/\//, "");
  const short = by === "payee" ? `${key.slice(0, 6)}…${key.slice(-4)}` : key;
  return name === null ? short : by === "payee" ? `${name}, ${short}` : name;
}
