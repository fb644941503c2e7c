import { Badge } from "@mantine/core";
import type { ReactNode } from "react";
import { MoneyRow } from "../../components/MoneyRow.tsx";
import type { Payment } from "../../lib/wire.ts";
import { isThroughChannel, KINDS, statusOf, titleOf } from "./status.ts";

interface PaymentRowProps {
  payment: Payment;
  labelOf: (address: string) => string | undefined;
  /** In a list of several agents. */
  agentName?: string;
  onOpen: () => void;
}

export function PaymentRow({ payment, labelOf, agentName, onOpen }: PaymentRowProps): ReactNode {
  const { kind, status, denial, memo, task, repeats } = payment;
  const { color, label } = statusOf(payment);
  return (
    <MoneyRow
      title={titleOf(payment, labelOf)}
      meta={
        <>
          {agentName !== undefined && `${agentName} · `}
          {KINDS[kind] ?? kind}
          {isThroughChannel(payment) && " · through a channel"}
          {denial && ` · ${reasonOf(denial.code)}`}
          {memo !== null && memo !== "" && ` · ${memo}`}
          {task !== null && ` · task ${task}`}
        </>
      }
      badge={
        <Badge color={color}>
          {label}
          {repeats > 0 && ` ×${repeats + 1}`}
        </Badge>
      }
      at={payment.createdAt}
      amount={payment.amount}
      sign={kind === "incoming" ? "+" : undefined}
      isVoid={status === "blocked" || status === "voided"}
      onOpen={onOpen}
    />
  );
}

export const reasonOf = (code: string): string => code.replaceAll("_", " ");
