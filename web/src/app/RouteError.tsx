import { Button, Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Logo } from "../components/Logo.tsx";
import { PageHeader } from "../components/PageHeader.tsx";
import styles from "./Shell.module.css";

/** In place of a screen that failed; a part that could not be loaded fails only if the server can be reached. */
export const RouteError = (): ReactNode => (
  <Stack>
    <PageHeader title="Something went wrong on this page" />
    <p role="alert">This is an error in Purser. Your agents and their money are not affected.</p>
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
);

/** The same where there is no frame around the screen. */
export const BrokenPage = (): ReactNode => (
  <main className={styles.broken}>
    <Logo />
    <RouteError />
  </main>
);
