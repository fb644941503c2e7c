import { Group, Paper, Text } from "@mantine/core";
import type { ReactNode } from "react";
import styles from "./Layout.module.css";
import { Skeleton } from "./Skeleton.tsx";

export function Section({
  title,
  hint,
  actions,
  children,
  flush,
}: {
  title?: string;
  hint?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  /** Lists extend to the edges. */
  flush?: boolean;
}): ReactNode {
  return (
    <Paper component="section" className={styles.section} aria-label={title}>
      {(title !== undefined || actions !== undefined) && (
        <Group justify="space-between" gap="sm" className={styles.head}>
          <div>
            {title !== undefined && <h2>{title}</h2>}
            {hint !== undefined && (
              <Text c="dimmed" size="sm" maw="70ch" mt={3}>
                {hint}
              </Text>
            )}
          </div>
          {actions}
        </Group>
      )}
      <div className={flush === true ? styles.flush : styles.body}>{children}</div>
    </Paper>
  );
}

export function Stat({
  label,
  children,
  note,
}: {
  label: string;
  /** Undefined while it loads. */
  children: ReactNode;
  note?: ReactNode;
}): ReactNode {
  return (
    <div className={styles.stat}>
      <dt>{label}</dt>
      <dd>
        {children ?? <Skeleton shape="figure" />}
        {note !== undefined && <span className={styles.note}>{note}</span>}
      </dd>
    </div>
  );
}

export const Stats = ({ children }: { children: ReactNode }): ReactNode => (
  <dl className={styles.stats}>{children}</dl>
);

export function KeyValues({
  rows,
}: {
  rows: (readonly [label: string, value: ReactNode] | false | undefined)[];
}): ReactNode {
  return (
    <dl className={styles.keyValues}>
      {rows.map(
        (row) =>
          row && (
            <div key={row[0]}>
              <dt>{row[0]}</dt>
              <dd>{row[1]}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

/** Sections side by side where the width allows it. Mantine's grids would need <style> tags. */
export const Columns = ({ children }: { children: ReactNode }): ReactNode => (
  <div className={styles.columns}>{children}</div>
);

/** Form fields side by side where the width allows it. */
export const Fields = ({ children }: { children: ReactNode }): ReactNode => (
  <div className={styles.fields}>{children}</div>
);

/** A remark between other content. Only an error is an alert. */
export const Note = ({
  children,
  color,
}: {
  children: ReactNode;
  color?: "yellow" | "green";
}): ReactNode => (
  <div className={styles.remark} data-color={color}>
    {children}
  </div>
);
