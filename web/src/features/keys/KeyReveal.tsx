import { Checkbox } from "@mantine/core";
import { type ReactNode, useEffect, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { Note, Stack } from "../../components/Layout.tsx";
import { useInfo } from "../../shared/info.ts";
import styles from "./KeyReveal.module.css";
import { KeySnippets } from "./KeySnippets.tsx";
import { SecretKey } from "./SecretKey.tsx";

interface KeyRevealProps {
  apiKey: string;
  agentName: string;
  doneLabel: string;
  onDone: () => void;
}

/** The only time that the browser has the key. It is never put into a URL, a store or a log. */
export function KeyReveal({ apiKey, agentName, doneLabel, onDone }: KeyRevealProps): ReactNode {
  const info = useInfo();
  const [isShown, setShown] = useState(false);
  const [isSaved, setSaved] = useState(false);
  useLeaveWarning(!isSaved);

  const baseUrl = info?.publicUrl ?? globalThis.location.origin;

  return (
    <Stack gap={5}>
      <Note tone="warn">
        <strong>This key is shown once.</strong> Purser keeps only its hash. Anyone who has the key
        can spend within the agent&rsquo;s rules, so keep it like a password.
      </Note>
      <SecretKey
        apiKey={apiKey}
        agentName={agentName}
        baseUrl={baseUrl}
        isShown={isShown}
        onShow={setShown}
      />
      <KeySnippets apiKey={apiKey} baseUrl={baseUrl} isShown={isShown} />
      <div className={styles.gate}>
        <Checkbox
          label="I saved the key"
          checked={isSaved}
          onChange={(event) => {
            setSaved(event.currentTarget.checked);
          }}
        />
        <Button variant="primary" disabled={!isSaved} onClick={onDone}>
          {doneLabel}
        </Button>
      </div>
    </Stack>
  );
}

/** Closing the tab now would lose the key permanently. */
function useLeaveWarning(isActive: boolean): void {
  useEffect(() => {
    if (!isActive) return undefined;
    const warn = (event: BeforeUnloadEvent): void => {
      event.preventDefault();
    };
    globalThis.addEventListener("beforeunload", warn);
    return () => {
      globalThis.removeEventListener("beforeunload", warn);
    };
  }, [isActive]);
}
