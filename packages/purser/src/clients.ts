/** The agent programs that take MCP servers: which file each reads, and how an entry is written in it. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { applyEdits, modify, parse as parseJsonc, type ParseError } from "jsonc-parser";
import { parse as parseToml, stringify as writeToml } from "smol-toml";
import { type Env, homeOf } from "./settings.ts";

/** Started by the program itself; or reached at a URL, where the program signs in in the browser. */
export type Server =
  | { command: string; args: string[]; env: Record<string, string> }
  | { url: string };

export interface Place {
  env: Env;
  platform: NodeJS.Platform;
}

export interface Client {
  id: string;
  name: string;
  file(place: Place): string;
  /** A folder or file that is there when the program is. */
  trace(place: Place): string;
  /** Undefined: the program's file takes no server of this kind. */
  entry(server: Server): Record<string, unknown> | undefined;
  /** The object that holds the servers by name. */
  holder: string;
  format: "json" | "toml";
}

const home = ({ env }: Place, ...parts: string[]): string => join(homeOf(env), ...parts);

/** Where programs keep what is theirs. */
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
    // A URL is added in its settings, not in this file.
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

/** The file's text with our entry in it, and everything else as it was; or why not. */
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
  const held = isObject(before) ? before[holder] : undefined;
  if (errors.length > 0 || !isObject(before)) return refused("it is not a JSON object");
  if (held !== undefined && !isObject(held)) return refused(`its ${holder} is not an object`);
  const whole = beside(held?.[name], entry);
  if (isDeepStrictEqual(held?.[name], whole)) return { ok: true as const, text };
  const tab = /^\t/m.test(text);
  const formattingOptions = { insertSpaces: !tab, tabSize: 2, insertFinalNewline: true };
  const base = text.trim() === "" ? "{}\n" : text;
  const edits = modify(base, [holder, name], whole, { formattingOptions });
  return { ok: true as const, text: applyEdits(base, edits) };
}

const OURS = new Set(["type", "command", "args", "env", "url", "httpUrl", "serverUrl"]);

/** What the person set on the entry (a time-out, tools that are allowed) stays. */
function beside(present: unknown, entry: Record<string, unknown>): Record<string, unknown> {
  if (!isObject(present)) return entry;
  const theirs = Object.entries(present).filter(([key]) => !OURS.has(key));
  return { ...entry, ...Object.fromEntries(theirs) };
}

const JSONC = { allowTrailingComma: true };

/** TOML is edited as text, for the sake of the comments in it, and read back before it is believed. */
function withTomlEntry(text: string, holder: string, name: string, entry: Record<string, unknown>) {
  let before: Record<string, unknown>;
  try {
    before = parseToml(text);
  } catch {
    return refused("it is not TOML");
  }
  const servers = before[holder] ?? {};
  if (!isObject(servers)) return refused(`its ${holder} is not a table`);
  const whole = beside(asPlain(servers[name]), entry);
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

/** Without the table of that name and those in it; what is said before the next table stays. */
function withoutTables(text: string, holder: string, name: string): string {
  const own = new RegExp(`^\\s*\\[\\s*${holder}\\s*\\.\\s*["']?${name}["']?\\s*[.\\]]`);
  const kept: string[] = [];
  let isOwn = false;
  for (const line of text.split("\n")) {
    if (/^\s*\[/.test(line)) isOwn = own.test(line);
    if (!isOwn || /^\s*#/.test(line)) kept.push(line);
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

/** Tables come without a prototype. */
const asPlain = (value: unknown): unknown =>
  value === undefined ? undefined : (JSON.parse(JSON.stringify(value)) as unknown);

const refused = (reason: string) => ({ ok: false as const, reason });

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
