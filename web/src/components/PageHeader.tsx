import { type ReactNode, useEffect } from "react";
import styles from "./PageHeader.module.css";

/** The header of every screen: it sets the tab's title and receives the focus after navigation. */
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
 * After navigation, keyboard and screen reader start at the new screen's title. The first screen leaves the
 * focus at the top of the page.
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
