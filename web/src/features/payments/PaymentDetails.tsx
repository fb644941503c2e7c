import type { ReactNode } from "react";
import { Badge } from "../../components/Badge.tsx";
import { Muted, Note, Row, Stack } from "../../components/Layout.tsx";
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
}

/** The amount, payee and status first, then the decision and the facts. */
export function PaymentDetails({ payment, labelOf, fixes }: PaymentDetailsProps): ReactNode {
  const status = statusOf(payment);
  return (
    <Stack gap={5}>
      <Stack gap={2}>
        <Money amount={payment.amount} size="display" />
        {payment.maximum !== null && payment.maximum !== payment.amount && (
          <Muted>
            Charged of a maximum of <Money amount={payment.maximum} />
          </Muted>
        )}
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
          <strong>{codeLabel(payment.failure.code)}</strong>
          {payment.failure.detail !== null && <p>{payment.failure.detail}</p>}
        </Note>
      )}
      <Trace payment={payment} />
      <PaymentFacts payment={payment} labelOf={labelOf} />
    </Stack>
  );
}

function Denial({ payment, fixes }: Omit<PaymentDetailsProps, "labelOf">): ReactNode {
  const { denial } = payment;
  if (!denial) return null;
  return (
    <Note tone="warn">
      <Stack gap={3}>
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
