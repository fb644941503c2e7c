/** `purser connect`: puts the wallet into the configuration of the agent programs on this machine, after asking. */
import { copyFileSync, existsSync, mkdirSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { createInterface } from "node:readline/promises";
import { fileURLToPath } from "node:url";
import { Purser } from "./client.ts";
import { type Client, CLIENTS, isInstalled, type Server, withEntry } from "./clients.ts";
import { type Env, keepKey, keyName, readSettings, writeWhole } from "./settings.ts";

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
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name))
    throw new Error("--name may contain only letters, digits, - and _");
  if (!oauth && apiKey === "")
    throw new Error("no API key: set AGENT_API_KEY, run purser init --save, or use --oauth");
  if (!print && !yes && !terminal.isInteractive)
    throw new Error("no terminal for the question: use --yes to write, or --print to only show");
  const clients = CLIENTS.filter((client) =>
    options.only.length > 0 ? options.only.includes(client.id) : isInstalled(client, place),
  );
  const unknown = options.only.filter((id) => !CLIENTS.some((client) => client.id === id));
  if (unknown.length > 0 || clients.length === 0)
    throw new Error(
      `${unknown.length > 0 ? `there is no client ${unknown.join(", ")}` : "no client was found on this machine"}; choose from ${CLIENTS.map(({ id }) => id).join(", ")}`,
    );
  // A wrong key or URL is told before anything is written.
  if (!oauth && !print) await new Purser({ apiKey, baseUrl: url }).me();
  const server: Server = oauth ? { url: `${url}/mcp` } : stdioServer(url, keyName({ url, apiKey }));
  const connected: Connected[] = [];
  let savedIn: string | undefined;
  // The programs start us without the shell's environment; the keys lie in one file, not in each of theirs. It is there
  // before an entry names it.
  const keep = (): void => {
    if (!oauth && !print) savedIn ??= keepKey(env, { url, apiKey });
  };
  for (const client of clients) {
    const file = client.file(place);
    const propose = () => planFor(client, file, name, server);
    // What goes wrong with one file is told of that one; the others are not left half done.
    const outcome = await carryOut(propose, { client, file, print, yes, terminal, keep }).catch(
      (error: unknown): Outcome => ({ status: "refused", reason: (error as Error).message }),
    );
    connected.push({ client: client.id, file, ...outcome });
  }
  return { connected, ...(savedIn !== undefined && { savedIn }) };
}

/** As this program was started. */
function stdioServer(url: string, key: string): Server {
  const script = fileURLToPath(new URL("../bin/purser.mjs", import.meta.url));
  // What npx would fetch by this name on a later day is whoever's has it in the registry then.
  if (/[\\/]_npx[\\/]/.test(script))
    throw new Error(
      "this command runs from the temporary npx cache: install the package first, or use --oauth",
    );
  const env = { PURSER_URL: url, PURSER_KEY_NAME: key };
  return { command: process.execPath, args: [script, "mcp"], env };
}

type Plan =
  | { kind: "write"; before: string | undefined; after: string; shown: string }
  | { kind: "unchanged" }
  | { kind: "refused"; reason: string };

function planFor(client: Client, file: string, name: string, server: Server): Plan {
  const entry = client.entry(server);
  if (!entry)
    return {
      kind: "refused",
      reason: "its file does not support a URL; connect it with a key instead",
    };
  const before = existsSync(file) ? readFileSync(file, "utf8") : undefined;
  const changed = withEntry(client, before ?? "", name, entry);
  if (!changed.ok)
    return { kind: "refused", reason: `${changed.reason}; the file was not changed` };
  if (changed.text === before) return { kind: "unchanged" };
  const alone = withEntry(client, "", name, entry);
  return { kind: "write", before, after: changed.text, shown: alone.ok ? alone.text : "" };
}

interface Carried {
  client: Client;
  file: string;
  print: boolean;
  yes: boolean;
  terminal: Terminal;
  keep: () => void;
}

async function carryOut(
  propose: () => Plan,
  { client, file, print, yes, terminal, keep }: Carried,
): Promise<Outcome> {
  const plan = propose();
  if (plan.kind !== "write") return withoutWriting(plan, keep);
  if (print || !yes) terminal.say(`${client.name}, in ${file}:\n\n${plan.shown}`);
  if (print) return { status: "shown" };
  if (!yes && !(await terminal.ask(`Write this to ${file}?`))) return { status: "declined" };
  // The program may have written its file while the question stood.
  const now = propose();
  if (now.kind !== "write") return withoutWriting(now, keep);
  keep();
  return { status: "written", ...write(file, now) };
}

function withoutWriting(plan: Exclude<Plan, { kind: "write" }>, keep: () => void): Outcome {
  if (plan.kind === "refused") return { status: "refused", reason: plan.reason };
  keep();
  return { status: "unchanged" };
}

/** What was there stays beside it. */
function write(
  file: string,
  { before, after }: { before: string | undefined; after: string },
): { backup?: string } {
  mkdirSync(dirname(file), { recursive: true });
  const real = before === undefined ? file : realpathSync(file);
  const mode = before === undefined ? 0o600 : statSync(real).mode;
  const stamp = new Date().toISOString().replaceAll(/[-:]|\.\d+Z/g, "");
  const backup = `${real}.backup-${stamp}`;
  if (before !== undefined) copyFileSync(real, backup);
  writeWhole(real, after, mode);
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
