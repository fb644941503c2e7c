import { Paper } from "@mantine/core";
import type { ReactNode } from "react";
import styles from "./List.module.css";
import { LoadMore, type LoadMoreProps } from "./LoadMore.tsx";
import { QueryStatus, type QueryStatusProps } from "./QueryStatus.tsx";
import { Skeleton } from "./Skeleton.tsx";

interface ListProps<T> {
  query: { data: T[] | undefined } & QueryStatusProps["query"] & LoadMoreProps["query"];
  /** "keys" */
  what: string;
  /** The title of the error. */
  failed: string;
  /** The number of rows in the placeholder. */
  placeholders?: number;
  /** Shown in place of an empty list. */
  empty: ReactNode;
  /** The rows have a frame of their own, because no section is around them. */
  isFramed?: boolean;
  className?: string;
  children: (item: T) => ReactNode;
}

/** A list that loads in pages: a placeholder or the error, the rows, and more rows while scrolling. */
export function List<T>({ query, what, empty, children, ...rest }: ListProps<T>): ReactNode {
  const { failed, placeholders = 4, isFramed = false, className } = rest;
  const rows = query.data?.map(children) ?? [];
  return (
    <>
      <QueryStatus query={query} what={what} failed={failed}>
        <Skeleton shape="row" count={placeholders} />
      </QueryStatus>
      {query.data?.length === 0 && empty}
      {rows.length > 0 && !isFramed && <ul className={className}>{rows}</ul>}
      {rows.length > 0 && isFramed && <FramedRows>{rows}</FramedRows>}
      <LoadMore query={query} what={what} />
    </>
  );
}

export const FramedRows = ({ children }: { children: ReactNode }): ReactNode => (
  <Paper component="ul" className={styles.framed}>
    {children}
  </Paper>
);
