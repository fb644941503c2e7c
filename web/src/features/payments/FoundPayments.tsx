import { EmptyState } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useNavigate } from "react-router";
import { Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { foundPaymentsQuery, type PaymentSearch } from "./api.ts";
import { PaymentRow } from "./PaymentRow.tsx";

const noLabel = (): undefined => undefined;

/** Payments of all agents. A row opens the payment at its agent. */
export function FoundPayments({ search }: { search: PaymentSearch }): ReactNode {
  const query = useInfiniteQuery(foundPaymentsQuery(search));
  const navigate = useNavigate();
  return (
    <Section
      flush
      title="Payments"
      hint="Everything that was requested in this time, also what was refused or has not settled."
    >
      <List
        query={query}
        what="payments"
        failed="Payments could not be loaded"
        empty={<EmptyState title="No payment matches" />}
      >
        {(payment) => (
          <PaymentRow
            key={payment.id}
            payment={payment}
            agentName={payment.agentName}
            labelOf={noLabel}
            onOpen={() => void navigate(`/agents/${payment.agentId}?payment=${payment.id}`)}
          />
        )}
      </List>
    </Section>
  );
}
