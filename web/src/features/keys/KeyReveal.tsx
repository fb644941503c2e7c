import { Stack } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Note } from "../../components/Layout.tsx";
import { SavedGate } from "../../components/SavedGate.tsx";
import { useInfo } from "../../shared/info.ts";
import { KeySnippets } from "./KeySnippets.tsx";
import { SecretKey } from "./SecretKey.tsx";

interface KeyRevealProps {
  apiKey: string;
  agentName: string;
  doneLabel?: string;
  onDone: () => void;
}

/** The only time that the browser has the key. It is never put into a URL, a store or a log. */
export function KeyReveal({ apiKey, agentName, doneLabel, onDone }: KeyRevealProps): ReactNode {
  const info = useInfo();
  const [isShown, setShown] = useState(false);
  const baseUrl = info?.publicUrl ?? globalThis.location.origin;
  return (
    <Stack gap="lg">
      <Note color="yellow">
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
      <SavedGate what="key" doneLabel={doneLabel} onDone={onDone} />
    </Stack>
  );
}
