import { type ReactNode, useCallback } from "react";
import { useSearchParams } from "react-router";
import { EmptyState } from "../../components/EmptyState.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { useLiveState } from "../../lib/live.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import type { Agent, Payment } from "../../lib/wire.ts";
import styles from "./Activity.module.css";
import { type FilterChoice, Filters, toFilter } from "./Filters.tsx";
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
  const [status, setStatus] = useParameter("status");
  const [kind, setKind] = useParameter("kind");
  const [from, setFrom] = useParameter("from");
  const [to, setTo] = useParameter("to");
  const choice: FilterChoice = { status, kind, from, to };
  const { items, ...query } = usePayments(agent.id, toFilter(choice));
  const openId = parameters.get("payment");
  const isFiltered = Object.values(choice).some((value) => value !== "");

  // A place of its own in the history: "back" closes the drawer.
  const open = (paymentId: string): void => {
    setParameters(
      (before) => {
        const next = new URLSearchParams(before);
        next.set("payment", paymentId);
        return next;
      },
      { preventScrollReset: true },
    );
  };
  const close = (): void => {
    setParameters(
      (before) => {
        const next = new URLSearchParams(before);
        next.delete("payment");
        return next;
      },
      { preventScrollReset: true, replace: true },
    );
  };
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
          set={{ status: setStatus, kind: setKind, from: setFrom, to: setTo }}
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
                open(payment.id);
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
        onClose={close}
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
