import type { ReactNode } from "react";
import { EmptyState } from "../../components/EmptyState.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { useLiveState } from "../../lib/live.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import type { Agent, Payment } from "../../lib/wire.ts";
import styles from "./Activity.module.css";
import { type FilterChoice, toFilter } from "./filter.ts";
import { Filters } from "./Filters.tsx";
import { PaymentDrawer } from "./PaymentDrawer.tsx";
import { PaymentRow } from "./PaymentRow.tsx";
import { useOpenPayment } from "./use-open-payment.ts";
import { usePayments } from "./use-payments.ts";

interface ActivityProps {
  agent: Agent;
  /** Actions that fix a refused payment; the rules belong to another feature. */
  fixes: (payment: Payment) => ReactNode;
}

export function Activity({ agent, fixes }: ActivityProps): ReactNode {
  const [status, setStatus] = useParameter("status");
  const [kind, setKind] = useParameter("kind");
  const [from, setFrom] = useParameter("from");
  const [to, setTo] = useParameter("to");
  const choice: FilterChoice = { status, kind, from, to };
  const { items, ...query } = usePayments(agent.id, toFilter(choice));
  const { openId, open, close } = useOpenPayment();
  const isFiltered = Object.values(choice).some((value) => value !== "");

  const labelOf = (address: string): string | undefined =>
    agent.allowlist.find((entry) => isSameAddress(entry.address, address))?.label || undefined;

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
      <QueryStatus query={query} what="payments" failed="Payments could not be loaded">
        <Skeleton shape="row" count={6} />
      </QueryStatus>
      {query.isSuccess && items.length === 0 && (
        <EmptyState title={isFiltered ? "No payment matches" : "No payments yet"}>
          {isFiltered
            ? "Change the filter."
            : "Payments and refused payments of the agent appear here immediately."}
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
      <LoadMore query={query} what="payments" />
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
