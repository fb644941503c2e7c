import { type ReactNode, useEffect, useRef } from "react";
import { Button } from "./Button.tsx";
import styles from "./LoadMore.module.css";

interface LoadMoreProps {
  hasMore: boolean;
  isLoading: boolean;
  onMore: () => void;
  what: string;
}

/** Fetches the next page shortly before its end comes into view; the button serves the keyboard. */
export function LoadMore({ hasMore, isLoading, onMore, what }: LoadMoreProps): ReactNode {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const target = button.current;
    if (!target || !hasMore || isLoading) return undefined;
    const observer = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) onMore();
      },
      { rootMargin: "400px" },
    );
    observer.observe(target);
    return () => {
      observer.disconnect();
    };
  }, [hasMore, isLoading, onMore]);
  if (!hasMore) return null;
  return (
    <div className={styles.root}>
      <Button ref={button} pending={isLoading && "Loading…"} onClick={onMore}>
        More {what}
      </Button>
    </div>
  );
}
