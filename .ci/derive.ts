// `npm run derive` generates files from the service's own sources: the TypeScript and Python types of the
// clients from its schemas, the plugin's skill from /skill.md, the script that verifies an audit log, the
// version of the database functions, and pages of docs/reference. With --check it only compares.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { findNetwork } from "../server/core/networks.ts";
import { FUNCTIONS_DIRECTORY, readFunctions } from "../server/infra/db/functions.ts";
import { skillMarkdown } from "../server/plugins/meta/skill.ts";
import { AgentApproval, ApprovalRequired } from "../server/schemas/approvals.ts";
import { Listing, ListingSummary } from "../server/schemas/listings.ts";
import {
  AgentSelf,
  Payment,
  PaymentSummary,
  SpendAnswer,
  SpendRequest,
} from "../server/schemas/payments.ts";
import { NewTaskBody, Task } from "../server/schemas/tasks.ts";
import { ValidateRequest, Validation } from "../server/schemas/validate.ts";
import { X402FetchAnswer, X402FetchRequest } from "../server/schemas/x402-fetch.ts";
import { REFERENCE_PAGES } from "./reference-pages.ts";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const TYPESCRIPT = "packages/purser/src/types.ts";
const PYTHON = "packages/python/src/purser/_types.py";
const SKILL = "plugins/purser/skills/purser/SKILL.md";
const AUDIT = "docs/how-to/check-audit.mjs";

const NAMED: Record<string, object> = {
  AgentSelf,
  SpendRequest,
  SpendResult: SpendAnswer,
  X402FetchRequest,
  FetchResult: X402FetchAnswer,
  Payment,
  PaymentSummary,
  Listing,
  ListingSummary,
  Approval: AgentApproval,
  ApprovalRequired,
  Task,
  TaskRequest: NewTaskBody,
  ValidateRequest,
  Validation,
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

/** The description of a member; for a nullable one, that of its non-null schema. */
function comment({ description, anyOf }: Schema): string {
  const text = description ?? anyOf?.find((schema) => schema.description)?.description;
  return text === undefined ? "" : `/** ${text.replaceAll("*/", "*\\/")} */\n`;
}

/** Generates Python types: each object is a class, named by its path from the top-level type. */
class PythonTypes {
  readonly classes: string[] = [];
  readonly #taken = new Set<string>();

  declare(name: string, schema: Schema): void {
    const type = this.#typeOf(schema, name);
    // An object type was already declared under its own name.
    if (type !== name) this.classes.push(`${name} = ${type}`);
  }

  #typeOf(schema: Schema, name: string): string {
    if (schema.const !== undefined) return `Literal[${pythonLiteral(schema.const)}]`;
    if (schema.enum) return `Literal[${schema.enum.map(pythonLiteral).join(", ")}]`;
    if (schema.anyOf) return this.#unionOf(schema.anyOf, name);
    if (schema.type === "array") return `List[${this.#typeOf(schema.items ?? {}, `${name}Item`)}]`;
    if (schema.type === "object") return this.#objectOf(schema, name);
    return PYTHON_PLAIN[schema.type ?? ""] ?? "Any";
  }

  #unionOf(schemas: Schema[], name: string): string {
    const isNull = ({ type }: Schema) => type === "null";
    const others = [
      ...new Set(schemas.filter((one) => !isNull(one)).map((one) => this.#typeOf(one, name))),
    ];
    const type = others.length === 1 ? others[0] : `Union[${others.join(", ")}]`;
    return schemas.some(isNull) ? `Optional[${type}]` : (type ?? "None");
  }

  #objectOf({ properties, patternProperties, required }: Schema, name: string): string {
    const [values] = Object.values(patternProperties ?? {});
    if (values) return `Dict[str, ${this.#typeOf(values, `${name}Value`)}]`;
    const members = Object.entries(properties ?? {});
    // A key that is not a Python identifier cannot be a member of a class.
    if (members.length === 0 || members.some(([key]) => !/^[a-z]\w*$/i.test(key)))
      return "Dict[str, Any]";
    if (this.#taken.has(name)) throw new Error(`two objects would be called ${name}`);
    this.#taken.add(name);
    const lines = members.map(([key, member]) => {
      const type = this.#typeOf(member, name + key[0]?.toUpperCase() + key.slice(1));
      return `    ${key}: ${required?.includes(key) ? type : `NotRequired[${type}]`}\n`;
    });
    this.classes.push(`class ${name}(TypedDict):\n${lines.join("")}`);
    return name;
  }
}

const PYTHON_PLAIN: Record<string, string> = {
  string: "str",
  integer: "int",
  number: "float",
  boolean: "bool",
  null: "None",
};

const pythonLiteral = (value: unknown): string =>
  typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value);

// Through JSON, to keep only the schema's serialized document.
const named = Object.entries(NAMED).map(
  ([name, schema]) => [name, JSON.parse(JSON.stringify(schema)) as Schema] as const,
);

const typescript = `/**
 * The request and response types of the service. Generated from its schemas by \`npm run derive\`:
 * change the schemas instead.
 */
${named.map(([name, schema]) => `export type ${name} = ${typeOf(schema)};\n`).join("\n")}`;

const types = new PythonTypes();
for (const [name, schema] of named) if (!name.endsWith("Request")) types.declare(name, schema);
const python = `"""The response types of the service. Generated from its schemas by \`npm run derive\`: change the schemas instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, TypedDict, Union

if TYPE_CHECKING:
    # Every type checker has this module; at run time it is not needed.
    from typing_extensions import NotRequired


${types.classes.join("\n\n")}

class PaymentPage(TypedDict):
    items: List[PaymentSummary]
    nextCursor: Optional[str]


class TaskPage(TypedDict):
    items: List[Task]
    nextCursor: Optional[str]


class ListingPage(TypedDict):
    items: List[ListingSummary]
    nextCursor: Optional[str]
`;

/** The skill for a local service; the plugin's own configuration names the actual one. */
const local = findNetwork("eip155:5042002");
const skill = skillMarkdown({
  baseUrl: "http://localhost:3000",
  networkId: local?.id ?? "",
  networkName: local?.name ?? "",
  demoPath: `/api/${local?.slug}-stats`,
});

const formatted = (file: string, input: string): string =>
  execFileSync(`${ROOT}node_modules/.bin/oxfmt`, ["--stdin-filepath", `${ROOT}${file}`], {
    cwd: ROOT,
    input,
    encoding: "utf8",
  });

/**
 * A build that changes a database function has a higher version, so that an older build does not replace it
 * (server/infra/db/functions.ts).
 */
const VERSION = "prisma/functions/version.json";
const { contents } = await readFunctions();
const recorded = JSON.parse(readFileSync(new URL("version.json", FUNCTIONS_DIRECTORY), "utf8")) as {
  version: number;
  contents: string;
};
const isChanged = recorded.contents !== contents;
const version = { version: recorded.version + (isChanged ? 1 : 0), contents };

const audit = await build({
  entryPoints: [`${ROOT}server/plugins/audit/check-audit.ts`],
  absWorkingDir: ROOT,
  bundle: true,
  write: false,
  format: "esm",
  platform: "node",
  target: "node20",
  external: ["viem"],
  // The script's users need viem anyway, so the faster keccak, which would be most of the script, is left
  // out.
  plugins: [
    {
      name: "hash-of-viem",
      setup: (building) =>
        building.onLoad({ filter: /core\/keccak\.ts$/ }, () => ({
          loader: "ts",
          contents: `import { keccak256 } from "viem";
            export const keccak = (bytes: Uint8Array): Uint8Array => keccak256(bytes, "bytes");`,
        })),
    },
  ],
  banner: {
    js: "// Checks the export of an audit: see check-an-audit.md. Written from server/plugins/audit by `npm run derive`: change that.",
  },
});

for (const [file, text] of [
  [VERSION, `${JSON.stringify(version, null, 2)}\n`],
  [TYPESCRIPT, formatted(TYPESCRIPT, typescript)],
  [PYTHON, python],
  [SKILL, skill],
  [AUDIT, audit.outputFiles[0]?.text ?? ""],
  ...Object.entries(REFERENCE_PAGES).map(
    ([page, text]) => [page, formatted(page, text())] as const,
  ),
] as const) {
  if (!process.argv.includes("--check")) writeFileSync(`${ROOT}${file}`, text);
  else if (readFileSync(`${ROOT}${file}`, "utf8") !== text) {
    console.error(`${file} is not current: npm run derive`);
    process.exitCode = 1;
  }
}
