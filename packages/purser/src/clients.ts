/**
 * The agent programs that support MCP servers: which configuration file each reads, and the format of an
 * entry.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { applyEdits, modify, parse as parseJsonc, type ParseError } from "jsonc-parser";
import { parse as parseToml, stringify as writeToml } from "smol-toml";
import { type Env, homeOf } from "./settings.ts";

/** Started by the program over stdio; or reached at a URL, where the program signs in in the browser. */
export type Server =
  | { command: string; args: string[]; env: Record<string, string> }
  | { url: string };

interface Place {
  env: Env;
  platform: NodeJS.Platform;
}

export interface Client {
  id: string;
  name: string;
  file(place: Place): string;
  /** A folder or file that exists where the program is installed. */
  trace(place: Place): string;
  /** Undefined where the program's file does not support this kind of server. */
  entry(server: Server): Record<string, unknown> | undefined;
  /** The key of the object that contains the servers by name. */
  holder: string;
  format: "json" | "toml";
}

const home = ({ env }: Place, ...parts: string[]): string => join(homeOf(env), ...parts);

/** The folder for application data. */
function appData(place: Place): string {
  const { env, platform } = place;
  if (platform === "win32") return env["APPDATA"] || home(place, "AppData", "Roaming");
  if (platform === "darwin") return home(place, "Library", "Application Support");
  return env["XDG_CONFIG_HOME"] || home(place, ".config");
}

const codexHome = (place: Place): string => place.env["CODEX_HOME"] || home(place, ".codex");

const isRemote = (server: Server): server is { url: string } => "url" in server;
const plain = (server: Server): Record<string, unknown> => ({ ...server });
const typed = (server: Server): Record<string, unknown> => ({
  type: isRemote(server) ? "http" : "stdio",
  ...server,
});
const urlAs =
  (name: string) =>
  (server: Server): Record<string, unknown> =>
    isRemote(server) ? { [name]: server.url } : plain(server);

export const CLIENTS: readonly Client[] = [
  {
    id: "claude-code",
    name: "Claude Code",
    file: (place) => home(place, ".claude.json"),
    trace: (place) => home(place, ".claude.json"),
    entry: typed,
    holder: "mcpServers",
    format: "json",
  },
  {
    id: "claude-desktop",
    name: "Claude Desktop",
    file: (place) => join(appData(place), "Claude", "claude_desktop_config.json"),
    trace: (place) => join(appData(place), "Claude"),
    // A URL is added in the program's settings, not in this file.
    entry: (server) => (isRemote(server) ? undefined : plain(server)),
    holder: "mcpServers",
    format: "json",
  },
  {
    id: "codex",
    name: "Codex",
    file: (place) => join(codexHome(place), "config.toml"),
    trace: codexHome,
    entry: plain,
    holder: "mcp_servers",
    format: "toml",
  },
  {
    id: "cursor",
    name: "Cursor",
    file: (place) => home(place, ".cursor", "mcp.json"),
    trace: (place) => home(place, ".cursor"),
    entry: plain,
    holder: "mcpServers",
    format: "json",
  },
  {
    id: "gemini",
    name: "Gemini CLI",
    file: (place) => home(place, ".gemini", "settings.json"),
    trace: (place) => home(place, ".gemini"),
    entry: urlAs("httpUrl"),
    holder: "mcpServers",
    format: "json",
  },
  {
    id: "vscode",
    name: "VS Code",
    file: (place) => join(appData(place), "Code", "User", "mcp.json"),
    trace: (place) => join(appData(place), "Code", "User"),
    entry: typed,
    holder: "servers",
    format: "json",
  },
  {
    id: "windsurf",
    name: "Windsurf",
    file: (place) => home(place, ".codeium", "windsurf", "mcp_config.json"),
    trace: (place) => home(place, ".codeium", "windsurf"),
    entry: urlAs("serverUrl"),
    holder: "mcpServers",
    format: "json",
  },
];

export const isInstalled = (client: Client, place: Place): boolean =>
  existsSync(client.trace(place));

/** The file's text with our entry in it and everything else unchanged; or why that is not possible. */
export function withEntry(
  { format, holder }: Pick<Client, "format" | "holder">,
  text: string,
  name: string,
  entry: Record<string, unknown>,
): { ok: true; text: string } | { ok: false; reason: string } {
  return format === "json"
    ? withJsonEntry(text, holder, name, entry)
    : withTomlEntry(text, holder, name, entry);
}

function withJsonEntry(text: string, holder: string, name: string, entry: Record<string, unknown>) {
  const errors: ParseError[] = [];
  const before: unknown = text.trim() === "" ? {} : parseJsonc(text, errors, JSONC);
  const servers = isObject(before) ? before[holder] : undefined;
  if (errors.length > 0 || !isObject(before)) return refused("it is not a JSON object");
  if (servers !== undefined && !isObject(servers)) return refused(`its ${holder} is not an object`);
  const whole = withOtherMembers(servers?.[name], entry);
  if (isDeepStrictEqual(servers?.[name], whole)) return { ok: true as const, text };
  const tab = /^\t/m.test(text);
  const formattingOptions = { insertSpaces: !tab, tabSize: 2, insertFinalNewline: true };
  const base = text.trim() === "" ? "{}\n" : text;
  const edits = modify(base, [holder, name], whole, { formattingOptions });
  return { ok: true as const, text: applyEdits(base, edits) };
}

const OUR_MEMBERS = new Set(["type", "command", "args", "env", "url", "httpUrl", "serverUrl"]);

/** Keeps what the user set on the entry (a timeout, allowed tools). */
function withOtherMembers(
  present: unknown,
  entry: Record<string, unknown>,
): Record<string, unknown> {
  if (!isObject(present)) return entry;
  const own = Object.entries(present).filter(([key]) => !OUR_MEMBERS.has(key));
  return { ...entry, ...Object.fromEntries(own) };
}

const JSONC = { allowTrailingComma: true };

/** TOML is edited as text, to keep its comments, and parsed again to check the result. */
function withTomlEntry(text: string, holder: string, name: string, entry: Record<string, unknown>) {
  let before: Record<string, unknown>;
  try {
    before = parseToml(text);
  } catch {
    return refused("it is not TOML");
  }
  const servers = before[holder] ?? {};
  if (!isObject(servers)) return refused(`its ${holder} is not a table`);
  const whole = withOtherMembers(asPlain(servers[name]), entry);
  if (isDeepStrictEqual(asPlain(servers[name]), whole)) return { ok: true as const, text };
  const block = writeToml({ [holder]: { [name]: whole } })
    .replace(`[${holder}]\n`, "")
    .trim();
  const kept = withoutTables(text, holder, name).trimEnd();
  const after = `${kept}${kept === "" ? "" : "\n\n"}${block}\n`;
  const expected = { ...before, [holder]: { ...servers, [name]: whole } };
  if (!isSame(after, expected)) return refused("this command cannot edit the format of its tables");
  return { ok: true as const, text: after };
}

/** Removes the table of that name and its subtables; comments before the next table stay. */
function withoutTables(text: string, holder: string, name: string): string {
  const own = new RegExp(`^\\s*\\[\\s*${holder}\\s*\\.\\s*["']?${name}["']?\\s*[.\\]]`);
  const kept: string[] = [];
  let isInTable = false;
  for (const line of text.split("\n")) {
    if (/^\s*\[/.test(line)) isInTable = own.test(line);
    if (!isInTable || /^\s*#/.test(line)) kept.push(line);
  }
  return kept.join("\n");
}

function isSame(text: string, expected: object): boolean {
  try {
    return isDeepStrictEqual(asPlain(parseToml(text)), asPlain(expected));
  } catch {
    return false;
  }
}

/** smol-toml returns tables without a prototype, which isDeepStrictEqual treats as different. */
const asPlain = (value: unknown): unknown =>
  value === undefined ? undefined : (JSON.parse(JSON.stringify(value)) as unknown);

const refused = (reason: string) => ({ ok: false as const, reason });

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
