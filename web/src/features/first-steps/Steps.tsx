import { Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { CheckIcon } from "../../components/icons.tsx";
import styles from "./Steps.module.css";

export interface Step {
  title: string;
  isDone: boolean;
  /** Where or how it is done. */
  action: ReactNode;
}

/** Steps in their order, each with whether it is done. */
export const Steps = ({ steps }: { steps: Step[] }): ReactNode => (
  <ol className={styles.list}>
    {steps.map(({ title, isDone, action }, index) => (
      <li key={title} className={styles.step} data-done={isDone || undefined}>
        <span className={styles.mark} aria-hidden="true">
          {isDone ? <CheckIcon size={14} /> : index + 1}
        </span>
        <Stack gap="xs" miw={0}>
          <Text fw={560}>
            {title}
            <span className="sr-only">{isDone ? ": done" : ": not done"}</span>
          </Text>
          {action}
        </Stack>
      </li>
    ))}
  </ol>
);
