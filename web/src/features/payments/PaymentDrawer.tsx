import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Badge } from "../../components/Badge.tsx";
import { Drawer } from "../../components/Dialog.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Note, Row, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import type { Agent, Payment } from "../../lib/wire.ts";
import { paymentQuery } from "./api.ts";
import { PaymentFacts } from "./PaymentFacts.tsx";
import { explainDenial, KINDS, sayCode, statusOf, titleOf } from "./status.ts";
import { Trace } from "./Trace.tsx";

interface PaymentDrawerProps {
  agent: Agent;
  paymentId: string | null;
  /** The row as the list has it; without it (a deep link) the payment is fetched. */
  known: Payment | undefined;
  labelOf: (address: string) => string | undefined;
  fixes: (payment: Payment) => ReactNode;
  onClose: () => void;
}

export function PaymentDrawer({
  agent,
  paymentId,
  known,
  labelOf,
  fixes,
  onClose,
}: PaymentDrawerProps): ReactNode {
  const { data, error, refetch } = useQuery({
    ...paymentQuery(agent.id, paymentId ?? ""),
    enabled: paymentId !== null,
  });
  const payment = data ?? known;
  return (
    <Drawer opened={paymentId !== null} onClose={onClose} title="Payment">
      {!payment && error && (
        <ErrorNotice
          title="The payment could not be loaded"
          error={error}
          onRetry={() => void refetch()}
        />
      )}
      {!payment && !error && (
        <Loading label="the payment">
          <Skeleton shape="title" />
          <Skeleton count={8} />
        </Loading>
      )}
      {payment && <Details payment={payment} labelOf={labelOf} fixes={fixes} />}
    </Drawer>
  );
}

function Details({
  payment,
  labelOf,
  fixes,
}: {
  payment: Payment;
  labelOf: (address: string) => string | undefined;
  fixes: (payment: Payment) => ReactNode;
}): ReactNode {
  const status = statusOf(payment);
  return (
    <Stack gap={5}>
      <Stack gap={2}>
        <Money amount={payment.amount} size="display" />
        <p>
          {KINDS[payment.kind] ?? payment.kind}: {titleOf(payment, labelOf)}
        </p>
        <Row>
          <Badge tone={status.tone}>{status.label}</Badge>
          <Muted>
            <TimeAgo iso={payment.createdAt} />
          </Muted>
        </Row>
        <Muted>{status.meaning}</Muted>
      </Stack>
      {payment.denial && <Denial payment={payment} fixes={fixes} />}
      {payment.failure && (
        <Note tone="warn">
          <strong>{sayCode(payment.failure.code)}</strong>
          {payment.failure.detail !== null && <p>{payment.failure.detail}</p>}
        </Note>
      )}
      <Trace payment={payment} />
      <PaymentFacts payment={payment} labelOf={labelOf} />
    </Stack>
  );
}

function Denial({
  payment,
  fixes,
}: {
  payment: Payment;
  fixes: (payment: Payment) => ReactNode;
}): ReactNode {
  const { denial } = payment;
  if (!denial) return null;
  return (
    <Note tone="warn">
      <Stack gap={3}>
        <div>
          <strong>{sayCode(denial.code)}</strong>
          <p>{explainDenial(payment)}</p>
          {denial.availableAt !== null && (
            <p>
              The amount fits the limit again <TimeUntil iso={denial.availableAt} />.
            </p>
          )}
        </div>
        {fixes(payment)}
      </Stack>
    </Note>
  );
}
