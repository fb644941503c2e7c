// The pages of docs/reference that are written from code: configuration, error codes, webhook events, the command line.
import { CONFIGURATION } from "../server/core/configuration-keys.ts";
import { NETWORKS } from "../server/core/networks.ts";
import { ERRORS } from "../server/errors.ts";
import { NOTIFICATION_MEANINGS } from "../server/schemas/notifications.ts";
import { USAGE } from "../packages/purser/src/cli.ts";

const NOTE = "<!-- Written by `npm run derive`. Change the code instead. -->";

const cell = (text: string): string => text.replaceAll("|", "\\|");

/** `RPC_URL_<chainId>` is #rpc_url_chainid. */
const anchorOf = (key: string): string => key.toLowerCase().replaceAll(/[<>]/g, "");

function configuration(): string {
  const sections = Object.entries(CONFIGURATION).map(([title, keys]) => {
    const rows = Object.entries(keys).map(
      ([key, { default: value, meaning }]) =>
        `| <a id="${anchorOf(key)}"></a>\`${key}\` | ${cell(meaning)} | ${value === undefined ? "" : cell(value)} |`,
    );
    return `## ${title}\n\n| key | meaning | default |\n| --- | --- | --- |\n${rows.join("\n")}`;
  });
  return `# Configuration

${NOTE}

Every key of the environment that the service reads. One error at the start lists everything that is missing or wrong.

${sections.join("\n\n")}

## Networks

Known networks: ${NETWORKS.map(({ name }) => name).join(", ")}.
`;
}

/** Statuses in the order of a table of contents; a code's anchor is the code. */
function errors(): string {
  const byStatus = new Map<number, string[]>();
  for (const [code, { status, title, help, retryable }] of Object.entries(ERRORS)) {
    const lines = byStatus.get(status) ?? [];
    lines.push(
      `| <a id="${code}"></a>\`${code}\` | ${cell(title)} | ${cell(help)} | ${retryable ? "yes" : "no"} |`,
    );
    byStatus.set(status, lines);
  }
  const sections = [...byStatus]
    .toSorted(([a], [b]) => a - b)
    .map(
      ([status, lines]) =>
        `## ${status}\n\n| code | title | what to do | retry the same |\n| --- | --- | --- | --- |\n${lines.join("\n")}`,
    );
  return `# Error codes

${NOTE}

Every refusal is a problem document (\`application/problem+json\`) with \`code\`, \`status\`, \`title\`, \`detail\` and \`suggestion\`; where a rule
refuses, also \`policy\`, \`approvable\` and \`availableAt\`. "Retry the same" says whether the same request may succeed later without a change.

${sections.join("\n\n")}
`;
}

const events = (): string => `# Webhook events

${NOTE}

The types of messages that a [webhook](../how-to/receive-webhooks.md) receives. \`"*"\` subscribes to all of them, and to types that come later.

| type | sent when |
| --- | --- |
${Object.entries(NOTIFICATION_MEANINGS)
  .map(([type, meaning]) => `| <a id="${type}"></a>\`${type}\` | ${cell(meaning)} |`)
  .join("\n")}

Messages about what moved no money, and \`agent.funded\`, are limited to 200 an hour for each type and agent. Corrections are not limited.
\`GET /api/notifications\` lists the messages of the last 30 days. What no webhook or e-mail address subscribes to creates no message.
`;

const commandLine = (): string => `# Command line

${NOTE}

The command \`purser\`: JSON on stdout, and an exit code for each outcome. In this repository it is \`npx purser\`.

\`\`\`text
${USAGE}
\`\`\`
`;

export const REFERENCE_PAGES: Record<string, () => string> = {
  "docs/reference/configuration.md": configuration,
  "docs/reference/errors.md": errors,
  "docs/reference/events.md": events,
  "docs/reference/cli.md": commandLine,
};
