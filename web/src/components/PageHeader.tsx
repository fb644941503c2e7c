import { type ReactNode, useEffect } from "react";
import styles from "./PageHeader.module.css";

/** Every screen begins with this: it names the tab and is where the focus lands after navigation. */
export function PageHeader({
  title,
  lead,
  actions,
  above,
}: {
  title: string;
  lead?: ReactNode;
  actions?: ReactNode;
  above?: ReactNode;
}): ReactNode {
  useDocumentTitle(title);
  useTitleFocus();
  return (
    <header className={styles.header}>
      <div className={styles.heading}>
        {above}
        <h1 tabIndex={-1} id="page-title">
          {title}
        </h1>
        {lead !== undefined && <div className={styles.lead}>{lead}</div>}
      </div>
      {actions !== undefined && <div className={styles.actions}>{actions}</div>}
    </header>
  );
}

let isFirstScreen = true;

/**
 * After going somewhere, the keyboard and the screen reader begin at the new screen's title. The very
 * first screen leaves the focus at the top of the page.
 */
export function useTitleFocus(): void {
  useEffect(() => {
    if (!isFirstScreen) document.getElementById("page-title")?.focus({ preventScroll: true });
    isFirstScreen = false;
  }, []);
}

export function useDocumentTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Purser`;
  }, [title]);
}
