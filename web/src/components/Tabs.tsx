import type { ReactNode } from "react";
import { NavLink } from "react-router";
import styles from "./Tabs.module.css";

/** Tabs with their own URLs, so that back, reload and deep links work. */
export function Tabs({
  label,
  items,
}: {
  label: string;
  items: readonly { to: string; label: string; end?: boolean }[];
}): ReactNode {
  return (
    <nav className={styles.root} aria-label={label}>
      {items.map((item) => (
        <NavLink
          key={item.to}
          to={item.to}
          end={item.end}
          replace
          preventScrollReset
          className={styles.tab}
        >
          {item.label}
        </NavLink>
      ))}
    </nav>
  );
}
