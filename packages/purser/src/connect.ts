/** `purser connect`: puts the wallet into the configuration of the agent programs on this machine, after asking. */
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import { createInterface } from "node:readline/promises";
import { fileURLToPath } from "node:url";
import { Purser } from "./client.ts";
import { type Client, CLIENTS, isInstalled, type Server, withEntry } from "./clients.ts";
import { type Env, readSettings, saveSettings, settingsFile } from "./settings.ts";
import { VERSION } from "./version.ts";

export interface ConnectOptions {
  /** Ids of clients; those found on this machine when none is named. */
  only: string[];
  name?: string;
  /** Do not ask. */
  yes?: boolean;
  /** Show what would be written, and write nothing. */
  print?: boolean;
  /** No key: the program signs in in the browser, where it can. */
  oauth?: boolean;
}

export interface Terminal {
  isInteractive: boolean;
  say(line: string): void;
  ask(question: string): Promise<boolean>;
}

type Outcome =
  | { status: "written"; backup?: string }
  | { status: "unchanged" | "declined" | "shown" }
  | { status: "refused"; reason: string };
export type Connected = { client: string; file: string } & Outcome;

export async function connect(
  options: ConnectOptions,
  env: Env,
  terminal: Terminal,
  platform: NodeJS.Platform = process.platform,
): Promise<{ connected: Connected[]; savedIn?: string }> {
  const place = { env, platform };
  const { url, apiKey } = readSettings(env);
  const { oauth = false, print = false, yes = false, name = "purser" } = options;
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name)) throw new Error("--name takes letters, digits, - and _");
  if (!oauth && apiKey === "")
    throw new Error("there is no key: set AGENT_API_KEY, run purser init --save, or use --oauth");
  if (!print && !yes && !terminal.isInteractive)
    throw new Error("there is no terminal to ask on: --yes writes, --print only shows");
  const clients = CLIENTS.filter((client) =>
    options.only.length > 0 ? options.only.includes(client.id) : isInstalled(client, place),
  );
  const unknown = options.only.filter((id) => !CLIENTS.some((client) => client.id === id));
  if (unknown.length > 0 || clients.length === 0)
    throw new Error(
      `${unknown.length > 0 ? `there is no client ${unknown.join(", ")}` : "no client was found on this machine"}; name some of ${CLIENTS.map(({ id }) => id).join(", ")}`,
    );
  // A wrong key or URL is told before anything is written.
  if (!oauth && !print) await new Purser({ apiKey, baseUrl: url }).me();
  const server: Server = oauth ? { url: `${url}/mcp` } : stdioServer(url);
  const connected: Connected[] = [];
  for (const client of clients) {
    const file = client.file(place);
    const plan = planFor(client, file, name, server);
    const outcome = await carryOut(plan, { client, file, print, yes, terminal });
    connected.push({ client: client.id, file, ...outcome });
  }
  const isUsed = connected.some(({ status }) => status === "written" || status === "unchanged");
  if (oauth || print || !isUsed) return { connected };
  // The programs start us without the shell's environment; the key lies in one file, not in each of theirs.
  return { connected, savedIn: keepKey(env, url, apiKey) };
}

function keepKey(env: Env, url: string, apiKey: string): string {
  const { AGENT_API_KEY: _given, ...rest } = env;
  const saved = readSettings({ ...rest, PURSER_URL: url });
  return saved.apiKey === apiKey ? settingsFile(env) : saveSettings(env, { url, apiKey });
}

/** As this program was started; from npx's passing cache, as npx would find it again. */
function stdioServer(url: string): Server {
  const script = fileURLToPath(new URL("../bin/purser.mjs", import.meta.url));
  const [command, ...args] = /[\\/]_npx[\\/]/.test(script)
    ? ["npx", "-y", `purser@${VERSION}`, "mcp"]
    : [process.execPath, script, "mcp"];
  return { command: command ?? "npx", args, env: { PURSER_URL: url } };
}

type Plan =
  | { kind: "write"; before: string | undefined; after: string; shown: string }
  | { kind: "unchanged" }
  | { kind: "refused"; reason: string };

function planFor(client: Client, file: string, name: string, server: Server): Plan {
  const entry = client.entry(server);
  if (!entry)
    return { kind: "refused", reason: "its file takes no URL; connect it with a key instead" };
  const before = existsSync(file) ? readFileSync(file, "utf8") : undefined;
  const changed = withEntry(client, before ?? "", name, entry);
  if (!changed.ok) return { kind: "refused", reason: `${changed.reason}; it is left as it is` };
  if (changed.text === before) return { kind: "unchanged" };
  const alone = withEntry(client, "", name, entry);
  return { kind: "write", before, after: changed.text, shown: alone.ok ? alone.text : "" };
}

async function carryOut(
  plan: Plan,
  {
    client,
    file,
    print,
    yes,
    terminal,
  }: { client: Client; file: string; print: boolean; yes: boolean; terminal: Terminal },
): Promise<Outcome> {
  if (plan.kind === "refused") return { status: "refused", reason: plan.reason };
  if (plan.kind === "unchanged") return { status: "unchanged" };
  if (print || !yes) terminal.say(`${client.name}, in ${file}:\n\n${plan.shown}`);
  if (print) return { status: "shown" };
  if (!yes && !(await terminal.ask(`Write this to ${file}?`))) return { status: "declined" };
  return { status: "written", ...write(file, plan) };
}

/** Whole or not at all; what was there stays beside it. */
function write(
  file: string,
  { before, after }: { before: string | undefined; after: string },
): { backup?: string } {
  mkdirSync(dirname(file), { recursive: true });
  // A file kept elsewhere and linked to stays linked to.
  const real = before === undefined ? file : realpathSync(file);
  const mode = before === undefined ? 0o600 : statSync(real).mode;
  const stamp = new Date().toISOString().replaceAll(/[-:]|\.\d+Z/g, "");
  const backup = `${real}.backup-${stamp}`;
  if (before !== undefined) copyFileSync(real, backup);
  const partial = `${real}.${process.pid}.tmp`;
  writeFileSync(partial, after, { mode });
  renameSync(partial, real);
  return before === undefined ? {} : { backup };
}

/** Questions go to stderr: stdout is for what programs read. */
export const terminal: Terminal = {
  isInteractive: process.stdin.isTTY && process.stderr.isTTY,
  say: (line) => console.error(line),
  async ask(question) {
    const lines = createInterface({ input: process.stdin, output: process.stderr });
    const answer = await lines.question(`${question} [y/N] `);
    lines.close();
    return /^y(es)?$/i.test(answer.trim());
  },
};
