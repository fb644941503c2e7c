import type { ReactNode } from "react";
import styles from "./Layout.module.css";

export function Section({
  title,
  hint,
  actions,
  children,
  id,
  flush,
}: {
  title?: string;
  hint?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  id?: string;
  flush?: boolean;
}): ReactNode {
  return (
    <section className={styles.section} id={id} aria-label={title}>
      {(title !== undefined || actions !== undefined) && (
        <div className={styles.sectionHead}>
          <div>
            {title !== undefined && <h2>{title}</h2>}
            {hint !== undefined && <p className={styles.hint}>{hint}</p>}
          </div>
          {actions}
        </div>
      )}
      <div className={flush === true ? styles.flush : styles.sectionBody}>{children}</div>
    </section>
  );
}

export function Stat({
  label,
  children,
  note,
}: {
  label: string;
  children: ReactNode;
  note?: ReactNode;
}): ReactNode {
  return (
    <div className={styles.stat}>
      <dt>{label}</dt>
      <dd>
        {children}
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

export const Stack = ({
  children,
  gap = 4,
}: {
  children: ReactNode;
  gap?: 2 | 3 | 4 | 5 | 6;
}): ReactNode => <div className={`${styles.stack} ${styles[`gap${gap}`]}`}>{children}</div>;

export const Row = ({ children, end }: { children: ReactNode; end?: boolean }): ReactNode => (
  <div className={`${styles.row} ${end === true ? styles.end : ""}`}>{children}</div>
);

export const Columns = ({ children }: { children: ReactNode }): ReactNode => (
  <div className={styles.columns}>{children}</div>
);

export const Note = ({
  children,
  tone,
}: {
  children: ReactNode;
  tone?: "warn" | "ok";
}): ReactNode => (
  <div className={`${styles.noteBox} ${tone === undefined ? "" : styles[tone]}`}>{children}</div>
);

export const Muted = ({ children }: { children: ReactNode }): ReactNode => (
  <span className={styles.muted}>{children}</span>
);

/** Form fields side by side where the width allows it. */
export const Fields = ({ children }: { children: ReactNode }): ReactNode => (
  <div className={styles.fields}>{children}</div>
);
