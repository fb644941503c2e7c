import { SegmentedControl, Stack } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { firstCurls, mcpConfig, typescriptCall } from "../../lib/snippets.ts";
import { useInfo } from "../../shared/info.ts";
import { mask } from "./SecretKey.tsx";

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

interface KeySnippetsProps {
  apiKey: string;
  baseUrl: string;
  isShown: boolean;
}

/** First calls with the new key: copied with the key, shown with it masked. */
export function KeySnippets({ apiKey, baseUrl, isShown }: KeySnippetsProps): ReactNode {
  const info = useInfo();
  const [kind, setKind] = useState<Kind>("curl");
  const demoUrl = `${baseUrl}${info?.networks[0]?.demoPath ?? "/api/arc-stats"}`;
  const { label, write } = SNIPPETS[kind];
  return (
    <Stack gap="sm">
      <SegmentedControl aria-label="Snippet" value={kind} onChange={setKind} data={KINDS} />
      <CodeBlock
        label={`${label}, with the key filled in`}
        code={write(baseUrl, apiKey, demoUrl)}
        shown={write(baseUrl, isShown ? apiKey : mask(apiKey), demoUrl)}
      />
    </Stack>
  );
}
