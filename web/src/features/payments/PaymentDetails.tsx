import { Badge, Group, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Note } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import type { Payment } from "../../lib/wire.ts";
import { PaymentFacts } from "./PaymentFacts.tsx";
import { explainDenial, KINDS, codeLabel, statusOf, titleOf } from "./status.ts";
import { Trace } from "./Trace.tsx";

interface PaymentDetailsProps {
  payment: Payment;
  labelOf: (address: string) => string | undefined;
  fixes: (payment: Payment) => ReactNode;
  actions: (payment: Payment) => ReactNode;
}

/** The amount, payee and status first, then the decision and the facts. */
export function PaymentDetails(props: PaymentDetailsProps): ReactNode {
  const { payment, labelOf, fixes, actions } = props;
  const status = statusOf(payment);
  return (
    <Stack gap="lg">
      <Stack gap="xs">
        <Money amount={payment.amount} size="display" />
        {payment.maximum !== null && payment.maximum !== payment.amount && (
          <Text span c="dimmed" size="sm">
            Charged of a maximum of <Money amount={payment.maximum} />
          </Text>
        )}
        <p>
          {KINDS[payment.kind] ?? payment.kind}: {titleOf(payment, labelOf)}
        </p>
        <Group>
          <Badge color={status.color}>{status.label}</Badge>
          <Text span c="dimmed" size="sm">
            <TimeAgo iso={payment.createdAt} />
          </Text>
        </Group>
        <Text span c="dimmed" size="sm">
          {status.meaning}
        </Text>
      </Stack>
      {payment.denial && <Denial payment={payment} fixes={fixes} />}
      {payment.failure && (
        <Note color="yellow">
          <strong>{codeLabel(payment.failure.code)}</strong>
          {payment.failure.detail !== null && <p>{payment.failure.detail}</p>}
        </Note>
      )}
      <Trace payment={payment} />
      <PaymentFacts payment={payment} labelOf={labelOf} />
      {actions(payment)}
    </Stack>
  );
}

function Denial({ payment, fixes }: Pick<PaymentDetailsProps, "payment" | "fixes">): ReactNode {
  const { denial } = payment;
  if (!denial) return null;
  return (
    <Note color="yellow">
      <Stack gap="sm">
        <div>
          <strong>{codeLabel(denial.code)}</strong>
          <p>{explainDenial(payment)}</p>
          {denial.availableAt !== null && (
            <p>
              The amount fits the limit again <TimeUntil iso={denial.availableAt} />
            </p>
          )}
        </div>
        {fixes(payment)}
      </Stack>
    </Note>
  );
}
