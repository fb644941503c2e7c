import { Group } from "@mantine/core";
import { type ReactNode, useEffect, useRef } from "react";
import { PendingButton } from "./PendingButton.tsx";

export interface LoadMoreProps {
  query: {
    hasNextPage: boolean;
    isFetching: boolean;
    isFetchingNextPage: boolean;
    error: unknown;
    fetchNextPage: () => unknown;
  };
  what: string;
}

/** Loads the next page shortly before the end of the list is visible; the button is for keyboard users, and for a retry. */
export function LoadMore({ query, what }: LoadMoreProps): ReactNode {
  const { hasNextPage, isFetching, isFetchingNextPage, error, fetchNextPage } = query;
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const target = button.current;
    // A live update may cancel the request of a page, so the check runs again after every request.
    // After an error only a press retries; the visible button would send requests without a pause.
    if (!target || !hasNextPage || isFetching || error !== null) return undefined;
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
  }, [hasNextPage, isFetching, error, fetchNextPage]);
  if (!hasNextPage) return null;
  return (
    <Group justify="center" p="md">
      <PendingButton
        ref={button}
        pending={isFetchingNextPage && "Loading…"}
        onClick={() => void fetchNextPage()}
      >
        More {what}
      </PendingButton>
    </Group>
  );
}
