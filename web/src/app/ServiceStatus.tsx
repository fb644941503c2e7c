import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useReachable } from "../lib/reachable.ts";
import { infoQuery } from "../shared/info.ts";
import styles from "./Shell.module.css";

/** A status line: which chain this is, and whether the service and the chain respond. */
export function ServiceStatus(): ReactNode {
  const { data, isError: isFailed } = useQuery({ ...infoQuery, refetchInterval: 15_000 });
  const isError = !useReachable() || isFailed;
  const network = data?.networks[0];
  const isUp = !isError && network?.blockHeight !== null;
  if (!network && !isError) return null;
  const text = isError
    ? "Service not reachable"
    : isUp
      ? (network?.name ?? "")
      : `${network?.name}: chain not reachable`;
  return (
    <p className={styles.status} role="status" title={text}>
      <span className={isUp ? styles.lamp : styles.lampOff} aria-hidden="true" />
      <span>{data?.localWorld === true && isUp ? `${text} · local` : text}</span>
    </p>
  );
}
