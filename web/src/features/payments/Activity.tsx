import { type ReactNode, useCallback } from "react";
import { useSearchParams } from "react-router";
import { EmptyState } from "../../components/EmptyState.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { useLiveState } from "../../lib/live.ts";
import type { Agent, Payment } from "../../lib/wire.ts";
import styles from "./Activity.module.css";
import { type FilterChoice, Filters, NO_FILTER, toFilter } from "./Filters.tsx";
import { PaymentDrawer } from "./PaymentDrawer.tsx";
import { PaymentRow } from "./PaymentRow.tsx";
import { usePayments } from "./use-payments.ts";

interface ActivityProps {
  agent: Agent;
  /** What may be done about a refused payment; the rules belong to another feature. */
  fixes: (payment: Payment) => ReactNode;
}

export function Activity({ agent, fixes }: ActivityProps): ReactNode {
  const [parameters, setParameters] = useSearchParams();
  const choice: FilterChoice = { ...NO_FILTER };
  for (const key of Object.keys(NO_FILTER) as (keyof FilterChoice)[])
    choice[key] = parameters.get(key) ?? "";
  const { items, ...query } = usePayments(agent.id, toFilter(choice));
  const openId = parameters.get("payment");
  const isFiltered = Object.values(choice).some((value) => value !== "");

  const set = useCallback(
    (changes: Record<string, string>, options?: { replace?: boolean }): void => {
      setParameters(
        (before) => {
          const next = new URLSearchParams(before);
          for (const [key, value] of Object.entries(changes)) {
            if (value === "") next.delete(key);
            else next.set(key, value);
          }
          return next;
        },
        { preventScrollReset: true, ...options },
      );
    },
    [setParameters],
  );
  const labelOf = (address: string): string | undefined =>
    agent.allowlist.find((entry) => isSameAddress(entry.address, address))?.label || undefined;
  const fetchNextPage = query.fetchNextPage;
  const onMore = useCallback(() => void fetchNextPage(), [fetchNextPage]);

  return (
    <section aria-label="Activity">
      <div className={styles.head}>
        <Live />
        <Filters
          agentId={agent.id}
          agentName={agent.name}
          choice={choice}
          onChange={(next) => {
            set({ ...next }, { replace: true });
          }}
        />
      </div>
      {query.error && (
        <ErrorNotice
          title="Payments could not be loaded"
          error={query.error}
          onRetry={() => void query.refetch()}
        />
      )}
      {query.isPending && (
        <Loading label="payments">
          <Skeleton shape="row" count={6} />
        </Loading>
      )}
      {query.isSuccess && items.length === 0 && (
        <EmptyState title={isFiltered ? "No payment matches" : "No payments yet"}>
          {isFiltered
            ? "Change the filter."
            : "Payments appear here the moment the agent makes them, the refused ones too."}
        </EmptyState>
      )}
      {items.length > 0 && (
        <ul className={styles.list}>
          {items.map((payment) => (
            <PaymentRow
              key={payment.id}
              payment={payment}
              labelOf={labelOf}
              onOpen={() => {
                set({ payment: payment.id });
              }}
            />
          ))}
        </ul>
      )}
      <LoadMore
        what="payments"
        hasMore={query.hasNextPage}
        isLoading={query.isFetchingNextPage}
        onMore={onMore}
      />
      <PaymentDrawer
        agent={agent}
        paymentId={openId}
        known={items.find(({ id }) => id === openId)}
        labelOf={labelOf}
        fixes={fixes}
        onClose={() => {
          set({ payment: "" }, { replace: true });
        }}
      />
    </section>
  );
}

function Live(): ReactNode {
  const state = useLiveState();
  return (
    <p className={styles.live} data-state={state} role="status">
      <span aria-hidden="true" />
      {state === "open" ? "Live" : "Reconnecting"}
    </p>
  );
}
