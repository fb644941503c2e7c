import { EmptyState, Group } from "@mantine/core";
import type { ReactNode } from "react";
import { List } from "../../components/List.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { useLiveState } from "../../lib/live.ts";
import { useOpenItem } from "../../lib/use-parameter.ts";
import type { Agent, Payment } from "../../lib/wire.ts";
import styles from "./Activity.module.css";
import { Filters, useChoice } from "./Filters.tsx";
import { PaymentDrawer } from "./PaymentDrawer.tsx";
import { PaymentRow } from "./PaymentRow.tsx";
import { usePayments } from "./use-payments.ts";

interface ActivityProps {
  agent: Agent;
  /** Actions that fix a refused payment; the rules belong to another feature. */
  fixes: (payment: Payment) => ReactNode;
  /** Other actions on a payment, of other features too. */
  actions: (payment: Payment) => ReactNode;
}

export function Activity({ agent, fixes, actions }: ActivityProps): ReactNode {
  const choice = useChoice();
  const query = usePayments(agent.id, choice.filter);
  const { openId, open, close } = useOpenItem("payment");
  const labelOf = (address: string): string | undefined =>
    agent.allowlist.find((entry) => isSameAddress(entry.address, address))?.label || undefined;
  return (
    <section aria-label="Activity">
      <Group justify="space-between" gap="sm" mb="sm">
        <Live />
        <Filters agent={agent} choice={choice} />
      </Group>
      <List
        query={query}
        what="payments"
        failed="Payments could not be loaded"
        placeholders={6}
        isFramed
        empty={
          <EmptyState
            title={choice.isFiltered ? "No payment matches" : "No payments yet"}
            description={
              choice.isFiltered
                ? "Change the filter."
                : "Payments and refused payments of the agent appear here immediately."
            }
          />
        }
      >
        {(payment) => (
          <PaymentRow
            key={payment.id}
            payment={payment}
            labelOf={labelOf}
            onOpen={() => {
              open(payment.id);
            }}
          />
        )}
      </List>
      <PaymentDrawer
        agent={agent}
        paymentId={openId}
        known={query.data?.find(({ id }) => id === openId)}
        labelOf={labelOf}
        fixes={fixes}
        actions={actions}
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
