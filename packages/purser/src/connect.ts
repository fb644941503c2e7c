/**
 * `purser connect`: adds the wallet to the configuration of the agent programs on this machine, after asking
 * the user.
 */
import { copyFileSync, existsSync, mkdirSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { createInterface } from "node:readline/promises";
import { fileURLToPath } from "node:url";
import { Purser } from "./client.ts";
import { type Client, CLIENTS, isInstalled, type Server, withEntry } from "./clients.ts";
import {
  type Env,
  keepKey,
  keyName,
  missingKey,
  readServiceSettings,
  writeWhole,
} from "./settings.ts";

export interface ConnectOptions {
  /** Ids of clients; without any, those found on this machine. */
  only: string[];
  name?: string;
  /** Write without asking. */
  yes?: boolean;
  /** Show the entry that would be written, and write nothing. */
  print?: boolean;
  /** Use no key: programs that support it sign in in the browser. */
  oauth?: boolean;
}

export interface Terminal {
  isInteractive: boolean;
  print(line: string): void;
  confirm(question: string): Promise<boolean>;
}

type Outcome =
  | { status: "written"; backup?: string }
  | { status: "unchanged" | "declined" | "shown" }
  | { status: "refused"; reason: string };
type Connected = { client: string; file: string } & Outcome;

export async function connect(
  options: ConnectOptions,
  env: Env,
  terminal: Terminal,
  platform: NodeJS.Platform = process.platform,
): Promise<{ connected: Connected[]; savedIn?: string }> {
  const place = { env, platform };
  const { url, apiKey } = readServiceSettings(env);
  const { oauth = false, print = false, yes = false, name = "purser" } = options;
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name))
    throw new Error("--name may contain only letters, digits, - and _");
  if (!oauth && apiKey === "")
    throw new Error(`no API key: ${missingKey(env, url)}, run purser init --save, or use --oauth`);
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
  // Detects a wrong key or URL before anything is written.
  if (!oauth && !print) await new Purser({ apiKey, baseUrl: url }).me();
  const server: Server = oauth ? { url: `${url}/mcp` } : stdioServer(url, keyName({ url, apiKey }));
  const connected: Connected[] = [];
  let savedIn: string | undefined;
  // The programs start `purser mcp` without the shell's environment, so the keys are stored in one file
  // instead of in each program's. The key is stored before an entry refers to it.
  const keep = (): void => {
    if (!oauth && !print) savedIn ??= keepKey(env, { url, apiKey });
  };
  for (const client of clients) {
    const file = client.file(place);
    const propose = () => planFor(client, file, name, server);
    // A failure with one file is reported for that file; the others are still processed.
    const outcome = await apply(propose, { client, file, print, yes, terminal, keep }).catch(
      (error: unknown): Outcome => ({ status: "refused", reason: (error as Error).message }),
    );
    connected.push({ client: client.id, file, ...outcome });
  }
  return { connected, ...(savedIn !== undefined && { savedIn }) };
}

/** An entry that starts the same program as this one. */
function stdioServer(url: string, key: string): Server {
  const script = fileURLToPath(new URL("../bin/purser.mjs", import.meta.url));
  // Later, npx might fetch a package of this name from somebody else.
  if (/[\\/]_npx[\\/]/.test(script))
    throw new Error(
      "this command runs from the temporary npx cache: install the package first, or use --oauth",
    );
  const env = { PURSER_URL: url, PURSER_KEY_NAME: key };
  return { command: process.execPath, args: [script, "mcp"], env };
}

type Plan =
  | { kind: "write"; before: string | undefined; after: string; preview: string }
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
  return { kind: "write", before, after: changed.text, preview: alone.ok ? alone.text : "" };
}

interface ConnectStep {
  client: Client;
  file: string;
  print: boolean;
  yes: boolean;
  terminal: Terminal;
  keep: () => void;
}

async function apply(
  propose: () => Plan,
  { client, file, print, yes, terminal, keep }: ConnectStep,
): Promise<Outcome> {
  const plan = propose();
  if (plan.kind !== "write") return withoutWriting(plan, keep);
  if (print || !yes) terminal.print(`${client.name}, in ${file}:\n\n${plan.preview}`);
  if (print) return { status: "shown" };
  if (!yes && !(await terminal.confirm(`Write this to ${file}?`))) return { status: "declined" };
  // The program may have written its file during the question, so the change is computed again.
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

/** Writes the file, with a backup of the previous one beside it. */
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

/** Questions go to stderr: stdout contains the JSON result for programs. */
export const terminal: Terminal = {
  isInteractive: process.stdin.isTTY && process.stderr.isTTY,
  print: (line) => console.error(line),
  async confirm(question) {
    const lines = createInterface({ input: process.stdin, output: process.stderr });
    const answer = await lines.question(`${question} [y/N] `);
    lines.close();
    return /^y(es)?$/i.test(answer.trim());
  },
};
