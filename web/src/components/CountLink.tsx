import type { ReactNode } from "react";
import { NavLink } from "react-router";
import styles from "./CountLink.module.css";

interface CountLinkProps {
  to: string;
  icon: ReactNode;
  label: string;
  count: number;
  /** "waiting for you" */
  what: string;
  /** Something there does not work. */
  trouble?: string | undefined;
}

/** In every page's header: a place, and how many things there need the owner. */
export const CountLink = ({ to, icon, label, count, what, trouble }: CountLinkProps): ReactNode => (
  <NavLink to={to} className={styles.link} data-waiting={count > 0 || undefined}>
    {icon}
    <span className={styles.word}>{label}</span>
    {trouble !== undefined && (
      <span className={styles.trouble} title={trouble}>
        <span className="sr-only">{trouble}</span>
      </span>
    )}
    <span role="status" className={count > 0 ? styles.count : "sr-only"}>
      {count > 99 ? "99+" : count > 0 && count}
      {count > 0 && <span className="sr-only"> {what}</span>}
    </span>
  </NavLink>
);
