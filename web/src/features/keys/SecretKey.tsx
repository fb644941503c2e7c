import { Button, Group, Paper } from "@mantine/core";
import type { ReactNode } from "react";
import { CopyButton } from "../../components/CopyButton.tsx";
import { DownloadIcon, EyeIcon } from "../../components/icons.tsx";
import { saveFile } from "../../lib/save-file.ts";
import { envFile } from "../../lib/snippets.ts";

interface SecretKeyProps {
  apiKey: string;
  agentName: string;
  baseUrl: string;
  isShown: boolean;
  onShow: (isShown: boolean) => void;
}

/** Hidden until the user shows it; it can be copied and saved while hidden. */
export function SecretKey(props: SecretKeyProps): ReactNode {
  const { apiKey, agentName, baseUrl, isShown, onShow } = props;
  return (
    <Paper p="md" radius="md" bg="var(--sunken)" bd="1px solid var(--line-strong)">
      <Group justify="space-between" gap="sm">
        <code data-testid="api-key" aria-label={isShown ? "API key" : "API key, hidden"}>
          {isShown ? apiKey : mask(apiKey)}
        </code>
        <Group>
          <Button
            size="xs"
            aria-pressed={isShown}
            onClick={() => {
              onShow(!isShown);
            }}
          >
            <EyeIcon size={16} />
            {isShown ? "Hide" : "Show"}
          </Button>
          <CopyButton value={apiKey} what="API key" text="Copy key" variant="filled" />
          <Button
            size="xs"
            onClick={() => {
              saveFile(`${fileName(agentName)}.env`, envFile(baseUrl, apiKey), "text/plain");
            }}
          >
            <DownloadIcon size={16} />
            Download .env
          </Button>
        </Group>
      </Group>
    </Paper>
  );
}

export const mask = (key: string): string => `${key.slice(0, 7)}${"•".repeat(24)}${key.slice(-4)}`;

const fileName = (name: string): string =>
  name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "") || "agent";
