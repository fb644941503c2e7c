import { type ReactNode, useEffect, useRef } from "react";
import { Button } from "./Button.tsx";
import styles from "./LoadMore.module.css";

interface LoadMoreProps {
  query: {
    hasNextPage: boolean;
    isFetching: boolean;
    isFetchingNextPage: boolean;
    fetchNextPage: () => unknown;
  };
  what: string;
}

/** Fetches the next page shortly before its end comes into view; the button serves the keyboard. */
export function LoadMore({ query, what }: LoadMoreProps): ReactNode {
  const { hasNextPage, isFetching, isFetchingNextPage, fetchNextPage } = query;
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const target = button.current;
    // A live update may cancel the fetch of a page before it is seen here: after any fetch this looks again.
    if (!target || !hasNextPage || isFetching) return undefined;
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
  }, [hasNextPage, isFetching, fetchNextPage]);
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
