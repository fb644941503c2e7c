import { Button, Checkbox, Group } from "@mantine/core";
import { useInputState, useWindowEvent } from "@mantine/hooks";
import type { ReactNode } from "react";
import styles from "./SavedGate.module.css";

interface SavedGateProps {
  /** "key" */
  what: string;
  doneLabel?: string;
  onDone: () => void;
}

/** Below a secret that is shown once: the user confirms that it is saved before leaving it. */
export function SavedGate({ what, doneLabel = "Done", onDone }: SavedGateProps): ReactNode {
  const [isSaved, setSaved] = useInputState(false);
  // Closing the tab now would lose the secret permanently.
  useWindowEvent("beforeunload", (event) => {
    if (!isSaved) event.preventDefault();
  });
  return (
    <Group justify="space-between" gap="md" className={styles.root}>
      <Checkbox label={`I saved the ${what}`} checked={isSaved} onChange={setSaved} />
      <Button variant="filled" disabled={!isSaved} onClick={onDone}>
        {doneLabel}
      </Button>
    </Group>
  );
}
