// `npm run types:client`: writes packages/purser/src/types.ts from the service's schemas, so that the package takes
// nothing from the server and still says what the server says. With --check it only compares.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { AgentApproval, ApprovalRequired } from "../server/schemas/approvals.ts";
import { Listing } from "../server/schemas/listings.ts";
import { AgentSelf, Payment, SpendAnswer, SpendRequest } from "../server/schemas/payments.ts";
import { X402FetchAnswer, X402FetchRequest } from "../server/schemas/x402-fetch.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const FILE = `${ROOT}packages/purser/src/types.ts`;

const NAMED: Record<string, object> = {
  AgentSelf,
  SpendRequest,
  SpendResult: SpendAnswer,
  X402FetchRequest,
  FetchResult: X402FetchAnswer,
  Payment,
  Listing,
  Approval: AgentApproval,
  ApprovalRequired,
};

interface Schema {
  type?: string;
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  patternProperties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  required?: string[];
  description?: string;
}

const PLAIN: Record<string, string> = {
  string: "string",
  integer: "number",
  number: "number",
  boolean: "boolean",
  null: "null",
};

function typeOf(schema: Schema): string {
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.anyOf) return [...new Set(schema.anyOf.map(typeOf))].join(" | ");
  if (schema.type === "array") return `(${typeOf(schema.items ?? {})})[]`;
  if (schema.type === "object") return objectOf(schema);
  return PLAIN[schema.type ?? ""] ?? "unknown";
}

function objectOf({
  properties,
  patternProperties,
  additionalProperties,
  required,
}: Schema): string {
  const [values] = Object.values(patternProperties ?? {});
  if (values) return `Record<string, ${typeOf(values)}>`;
  const members = Object.entries(properties ?? {}).map(
    ([name, member]) =>
      `${comment(member)}${JSON.stringify(name)}${required?.includes(name) ? "" : "?"}: ${typeOf(member)};`,
  );
  if (additionalProperties === true) members.push("[member: string]: unknown;");
  return `{\n${members.join("\n")}\n}`;
}

/** Of a member, or of what it is beside null. */
function comment({ description, anyOf }: Schema): string {
  const text = description ?? anyOf?.find((schema) => schema.description)?.description;
  return text === undefined ? "" : `/** ${text.replaceAll("*/", "*\\/")} */\n`;
}

const source = `/**
 * What the service takes and answers, as plain types. Written from the service's schemas by \`npm run types:client\`:
 * change those.
 */
${Object.entries(NAMED)
  // Through JSON: only what is in the schema's document.
  .map(([name, schema]) => [name, JSON.parse(JSON.stringify(schema)) as Schema] as const)
  .map(([name, schema]) => `export type ${name} = ${typeOf(schema)};\n`)
  .join("\n")}`;

const formatted = execFileSync(`${ROOT}node_modules/.bin/oxfmt`, ["--stdin-filepath", FILE], {
  cwd: ROOT,
  input: source,
  encoding: "utf8",
});

if (!process.argv.includes("--check")) writeFileSync(FILE, formatted);
else if (readFileSync(FILE, "utf8") !== formatted) {
  console.error("packages/purser/src/types.ts is not what the schemas say: npm run types:client");
  process.exitCode = 1;
}
