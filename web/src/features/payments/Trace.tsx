import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { BlockIcon, CheckIcon } from "../../components/icons.tsx";
import { KeyValues } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import type { Payment } from "../../lib/wire.ts";
import styles from "./Activity.module.css";

const amount = (value: string): ReactNode => (/^\d/.test(value) ? <Money amount={value} /> : value);

/** Every rule that was evaluated, in this order. */
export function Trace({ payment }: { payment: Payment }): ReactNode {
  if (payment.trace.length === 0) return null;
  const policy = payment.denial?.policy;
  return (
    <Stack gap="sm">
      <h3>Decision</h3>
      <ol className={styles.trace}>
        {payment.trace.map((step) => (
          <li key={step.rule} data-passed={String(step.passed)}>
            {step.passed === true && <CheckIcon size={16} />}
            {step.passed === false && <BlockIcon size={16} />}
            {step.passed === null && <span className={styles.skipped} />}
            <div>
              <strong>{step.rule.replaceAll("_", " ")}</strong>
              <span className="sr-only">
                {step.passed === null ? ", not checked" : step.passed ? ", passed" : ", refused"}
              </span>
              <p>{step.passed === null ? "Not checked" : step.detail}</p>
            </div>
          </li>
        ))}
      </ol>
      {policy && (
        <KeyValues
          rows={[
            ["Requested", amount(policy.requested)],
            ["Limit", amount(policy.limit)],
            ["Spent at that time", amount(policy.spent)],
            ["Reserved at that time", amount(policy.reserved)],
            ["Remaining at that time", amount(policy.remaining)],
          ]}
        />
      )}
    </Stack>
  );
}
