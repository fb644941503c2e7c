import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Drawer } from "../../components/Dialog.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import type { Agent, Payment } from "../../lib/wire.ts";
import { paymentQuery } from "./api.ts";
import { PaymentDetails } from "./PaymentDetails.tsx";

interface PaymentDrawerProps {
  agent: Agent;
  paymentId: string | null;
  /** The list's entry; without it (a deep link) the payment is fetched. */
  known: Payment | undefined;
  labelOf: (address: string) => string | undefined;
  fixes: (payment: Payment) => ReactNode;
  actions: (payment: Payment) => ReactNode;
  onClose: () => void;
}

export function PaymentDrawer(props: PaymentDrawerProps): ReactNode {
  const { agent, paymentId, known, labelOf, fixes, actions, onClose } = props;
  const query = useQuery({
    ...paymentQuery(agent.id, paymentId ?? ""),
    enabled: paymentId !== null,
  });
  const payment = query.data ?? known;
  return (
    <Drawer opened={paymentId !== null} onClose={onClose} title="Payment">
      {payment ? (
        <PaymentDetails payment={payment} labelOf={labelOf} fixes={fixes} actions={actions} />
      ) : (
        <QueryStatus query={query} what="the payment" failed="The payment could not be loaded">
          <Skeleton shape="title" />
          <Skeleton count={8} />
        </QueryStatus>
      )}
    </Drawer>
  );
}
