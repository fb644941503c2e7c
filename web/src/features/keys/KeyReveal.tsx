import { Checkbox } from "@mantine/core";
import { type ReactNode, useEffect, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { Note, Stack } from "../../components/Layout.tsx";
import { Segmented } from "../../components/Segmented.tsx";
import { firstCurls, mcpConfig, typescriptCall } from "../../lib/snippets.ts";
import { useInfo } from "../../shared/info/use-info.ts";
import styles from "./KeyReveal.module.css";
import { mask, SecretKey } from "./SecretKey.tsx";

interface KeyRevealProps {
  apiKey: string;
  agentName: string;
  doneLabel: string;
  onDone: () => void;
}

const SNIPPETS = {
  curl: { label: "curl", write: firstCurls },
  typescript: { label: "TypeScript", write: typescriptCall },
  mcp: { label: "MCP", write: mcpConfig },
} as const;
type Kind = keyof typeof SNIPPETS;
const KINDS = (Object.keys(SNIPPETS) as Kind[]).map((value) => ({
  value,
  label: SNIPPETS[value].label,
}));

/** The only time the key is in the browser. It is never put in an address, a store or a log. */
export function KeyReveal({ apiKey, agentName, doneLabel, onDone }: KeyRevealProps): ReactNode {
  const info = useInfo();
  const [isShown, setShown] = useState(false);
  const [isSaved, setSaved] = useState(false);
  const [kind, setKind] = useState<Kind>("curl");
  useLeaveWarning(!isSaved);

  const baseUrl = info?.publicUrl ?? globalThis.location.origin;
  const demoUrl = `${baseUrl}${info?.networks[0]?.demoPath ?? "/api/arc-stats"}`;
  const shownKey = isShown ? apiKey : mask(apiKey);
  const { label, write } = SNIPPETS[kind];

  return (
    <Stack gap={5}>
      <Note tone="warn">
        <strong>This key is shown once.</strong> Purser keeps only its hash. Whoever has it can
        spend within the agent&rsquo;s rules, so treat it like a password.
      </Note>
      <SecretKey
        apiKey={apiKey}
        agentName={agentName}
        baseUrl={baseUrl}
        isShown={isShown}
        onShow={setShown}
      />
      <div>
        <Segmented label="Snippet" value={kind} onChange={setKind} options={KINDS} />
        <div className={styles.snippet}>
          <CodeBlock
            label={`${label}, with the key filled in`}
            code={write(baseUrl, apiKey, demoUrl)}
            shown={write(baseUrl, shownKey, demoUrl)}
          />
        </div>
      </div>
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

/** Closing the tab now would lose the key for good. */
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
