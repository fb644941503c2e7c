import { Button, Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { useRouteError } from "react-router";
import { Logo } from "../components/Logo.tsx";
import { useDocumentTitle } from "../components/PageHeader.tsx";
import styles from "./Shell.module.css";

/** A new version was deployed while this page was open, and the chunks of the old one are gone. */
const isStaleChunk = (error: unknown): boolean =>
  error instanceof Error && /dynamically imported module|module script failed/i.test(error.message);

export function RouteError(): ReactNode {
  const error = useRouteError();
  useDocumentTitle("Something went wrong");
  return (
    <main className={styles.broken}>
      <Stack>
        <Logo />
        <h1>
          {isStaleChunk(error)
            ? "This page could not be loaded"
            : "Something went wrong on this page"}
        </h1>
        <p role="alert">
          {isStaleChunk(error)
            ? "Purser was updated or cannot be reached. Reload to get the current version."
            : "This is an error in Purser. Your agents and their money are not affected."}
        </p>
        <Group>
          <Button
            variant="filled"
            onClick={() => {
              globalThis.location.reload();
            }}
          >
            Reload
          </Button>
          <Button component="a" href="/">
            Start page
          </Button>
        </Group>
      </Stack>
    </main>
  );
}
