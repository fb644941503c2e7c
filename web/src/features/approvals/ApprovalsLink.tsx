import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { NavLink } from "react-router";
import { BellIcon } from "../../components/icons.tsx";
import { openApprovalsQuery } from "./api.ts";
import styles from "./Approvals.module.css";

/** In the head of every page: how many payments wait for the owner. */
export function ApprovalsLink(): ReactNode {
  const count = useQuery(openApprovalsQuery).data?.items.length ?? 0;
  return (
    <NavLink to="/approvals" className={styles.link} data-waiting={count > 0 || undefined}>
      <BellIcon />
      <span className={styles.word}>Approvals</span>
      <span role="status" className={count > 0 ? styles.count : "sr-only"}>
        {count > 0 ? count : ""}
        {count > 0 && <span className="sr-only"> waiting for you</span>}
      </span>
    </NavLink>
  );
}
