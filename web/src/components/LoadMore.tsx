import { type ReactNode, useEffect, useRef } from "react";
import { Button } from "./Button.tsx";
import styles from "./LoadMore.module.css";

interface LoadMoreProps {
  query: { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown };
  what: string;
}

/** Fetches the next page shortly before its end comes into view; the button serves the keyboard. */
export function LoadMore({ query, what }: LoadMoreProps): ReactNode {
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = query;
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const target = button.current;
    if (!target || !hasNextPage || isFetchingNextPage) return undefined;
    const observer = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) void fetchNextPage();
      },
      { rootMargin: "400px" },
    );
    observer.observe(target);
    return () => {
      observer.disconnect();
    };
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  if (!hasNextPage) return null;
  return (
    <div className={styles.root}>
      <Button
        ref={button}
        pending={isFetchingNextPage && "Loading…"}
        onClick={() => void fetchNextPage()}
      >
        More {what}
      </Button>
    </div>
  );
}
