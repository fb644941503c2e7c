// Generates the pages of docs/reference: configuration, error codes, webhook events, the command line, and the table of
// settings in the page about rules.
import { readFileSync } from "node:fs";
import { AGENT_FIELDS } from "../packages/rules/src/fields.ts";
import { CUSTODY_KEYS, SECTIONS } from "../server/core/configuration.ts";
import { NETWORKS } from "../server/core/networks.ts";
import type { Documented } from "../server/core/setting.ts";
import { ERRORS } from "../server/errors.ts";
import { GROUPS } from "../server/plugins/validate/causes.ts";
import { NOTIFICATION_MEANINGS } from "../server/schemas/notifications.ts";
import { ALL_USAGE } from "../packages/purser/src/usage.ts";

const NOTE = "<!-- Written by `npm run derive`. Change the code instead. -->";

/** The page's outline shows sections only, not a hundred entries. */
const SECTIONS_ONLY = "---\noutline: 2\n---";

function configuration(): string {
  const sections = Object.entries(SECTIONS).map(([title, settings]) => {
    const suffix = settings === SECTIONS["Each chain"] ? "_<chainId>" : "";
    const entries = Object.entries<Documented>(settings).map(([key, setting]) => {
      const { meaning, who, form, usually = setting.default } = setting;
      return [
        `### \`${key}${suffix}\`\n`,
        form === undefined ? meaning : `${meaning} Must be ${form}.`,
        `\nChanged by: ${who}`,
        ...(usually ? [`\nDefault: ${usually}`] : []),
      ].join("\n");
    });
    return `## ${title}\n\n${entries.join("\n\n")}`;
  });
  const secrets = Object.values<Record<string, Documented>>(SECTIONS)
    .flatMap((settings) => Object.entries(settings))
    .flatMap(([key, { secret }]) => (secret ? [key] : []));
  const named = (keys: readonly string[]): string =>
    keys.map((key) => `\`${key}${key in SECTIONS["Each chain"] ? "_<chainId>" : ""}\``).join(", ");
  return `${SECTIONS_ONLY}

# Configuration

${NOTE}

Every key of the environment that the service reads. One error at the start lists everything that is missing or wrong, and
keys of earlier releases that must be replaced.

${sections.join("\n\n")}

## Secrets from files

### \`<key>_FILE\`

The file that holds a secret: \`MASTER_KEYS_FILE=/run/secrets/master-keys\` instead of \`MASTER_KEYS\`. In the same way: ${named(secrets)}.

Changed by: an operator whose orchestrator has secrets.

## The custody process

It reads only ${named(CUSTODY_KEYS)}.

## Networks

Known networks: ${NETWORKS.map(({ name }) => name).join(", ")}.
`;
}

/** Grouped by status; each code is a heading, so that its anchor is the code. */
function errors(): string {
  const byStatus = new Map<number, string[]>();
  for (const [code, { status, title, help, retryable }] of Object.entries(ERRORS)) {
    const entries = byStatus.get(status) ?? [];
    entries.push(
      `### \`${code}\`\n\n**${title}.** ${help}\n\nRetry the same: ${retryable ? "yes" : "no"}`,
    );
    byStatus.set(status, entries);
  }
  const sections = [...byStatus]
    .toSorted(([a], [b]) => a - b)
    .map(([status, entries]) => `## ${status}\n\n${entries.join("\n\n")}`);
  return `${SECTIONS_ONLY}

# Error codes

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
  .map(([type, meaning]) => `| <a id="${type}"></a>\`${type}\` | ${meaning} |`)
  .join("\n")}

Messages about what moved no money, and \`agent.funded\`, are limited to 200 an hour for each type and agent. Corrections are not limited.
\`GET /api/notifications\` and the app list the messages of the last 30 days and the last settlement, with \`title\`, \`detail\`, \`readAt\` and the number of unread ones; \`POST /api/notifications/read\` marks
them. They are recorded whether or not a webhook, an e-mail address or a device is set up.
`;

/** Grouped as in the code; each code is a heading, so that its anchor is the code. */
function validateCauses(): string {
  const sections = Object.entries(GROUPS).map(([title, causes]) => {
    const lines = Object.entries(causes).map(([code, { severity, message, fix }]) => {
      const remedy = fix === undefined ? "" : ` Fix: \`${fix}\``;
      return `- <a id="${code}"></a>\`${code}\` (${severity}): ${message}${remedy}`;
    });
    return `## ${title}\n\n${lines.join("\n")}`;
  });
  return `# Causes of the validator

${NOTE}

What \`POST /api/x402/validate\` can find about a paid API: see [why nobody can pay me](../how-to/why-nobody-can-pay-me.md). An **error** means that
nobody can pay, or not this offer; a **warning** that some clients or marketplaces refuse it; a **note** that it could be better, or could not be
checked. Where the fix depends on your API, the answer has the line to copy in \`fix\`.

${sections.join("\n\n")}
`;
}

const commandLine = (): string => `# Command line

${NOTE}

The command \`purser\`: JSON on stdout, and an exit code for each outcome. In this repository it is \`npx purser\`.

\`\`\`text
${ALL_USAGE.join("\n\n")}
\`\`\`
`;

const RULES_PAGE = "docs/reference/rules.md";
const [FIRST, LAST] = [NOTE, "<!-- The rest is written by hand. -->"];

/** The page as it is, with the table of settings. */
function rules(): string {
  const page = readFileSync(new URL(`../${RULES_PAGE}`, import.meta.url), "utf8");
  const [before, after] = [page.split(FIRST)[0], page.split(LAST)[1]];
  if (before === undefined || after === undefined) throw new Error(`${RULES_PAGE} lacks its marks`);
  const lines = AGENT_FIELDS.map(
    ({ name, description, help }) => `| \`${name}\` | ${description ?? help} |`,
  );
  return `${before}${FIRST}

| rule | meaning |
| --- | --- |
${lines.join("\n")}

${LAST}${after}`;
}

export const REFERENCE_PAGES: Record<string, () => string> = {
  "docs/reference/configuration.md": configuration,
  "docs/reference/errors.md": errors,
  "docs/reference/events.md": events,
  "docs/reference/cli.md": commandLine,
  "docs/reference/validate.md": validateCauses,
  [RULES_PAGE]: rules,
};
