/** Where the service is, and the agent's key: from the environment, else from a file of the user's own. */
import {
  existsSync,
  mkdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  writeFileSync,
} from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

export type Env = Record<string, string | undefined>;

export interface Settings {
  url: string;
  apiKey: string;
}

/** All keys that were kept, by name: one that is kept later takes none away. */
interface Saved {
  /** The one that is taken where none is named. */
  current: string | undefined;
  keys: Record<string, Settings>;
}

const DEFAULT_URL = "http://localhost:3000";
/** Less is no key of a service, and its name would tell too much of it. */
const SHORTEST_KEY = 24;

export const homeOf = (env: Env): string => env["HOME"] || env["USERPROFILE"] || homedir();

export const settingsFile = (env: Env): string =>
  join(env["XDG_CONFIG_HOME"] || join(homeOf(env), ".config"), "purser", "config.json");

/**
 * The key of the file is for the service it was made for, and goes to no other. A program that was connected names its
 * own key (PURSER_KEY_NAME); it pays from that wallet or from none, whatever key the environment has.
 */
export function readSettings(env: Env): Settings {
  const { current, keys } = readSaved(env);
  const named = env["PURSER_KEY_NAME"];
  const kept = keys[named || current || ""];
  const url = withoutSlash(env["PURSER_URL"] || kept?.url || DEFAULT_URL);
  const ownKey = kept && withoutSlash(kept.url) === url ? kept.apiKey : undefined;
  if (named && ownKey === undefined)
    throw new Error(
      `${settingsFile(env)} has no key ${named} for ${url}: run purser connect again`,
    );
  return { url, apiKey: (named ? ownKey : env["AGENT_API_KEY"] || ownKey) || "" };
}

/** What a person may recognize a key by, as the owner's page shows it; not the key. */
export function keyName({ apiKey }: Settings): string {
  if (apiKey.length < SHORTEST_KEY) throw new Error("AGENT_API_KEY is not an agent's key");
  return `${apiKey.slice(0, 11)}-${apiKey.slice(-4)}`;
}

/** Beside those that are there. The first becomes the current one, a later one if it is told so. */
export function keepKey(env: Env, settings: Settings, { asCurrent = false } = {}): string {
  const file = settingsFile(env);
  const { current, keys } = readSaved(env);
  const name = keyName(settings);
  const saved = {
    current: asCurrent ? name : (current ?? name),
    keys: { ...keys, [name]: settings },
  };
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  writeWhole(file, `${JSON.stringify(saved, null, 2)}\n`, 0o600);
  return file;
}

/** Whole or not at all. A file kept elsewhere and linked to stays linked to. */
export function writeWhole(file: string, text: string, mode: number): void {
  const real = existsSync(file) ? realpathSync(file) : file;
  const partial = `${real}.${process.pid}.tmp`;
  writeFileSync(partial, text, { mode });
  renameSync(partial, real);
}

function readSaved(env: Env): Saved {
  const file = settingsFile(env);
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch {
    return { current: undefined, keys: {} };
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error(`${file} is not JSON: fix or remove it`);
  }
  const { current, keys, ...single } = asObject(value);
  if (keys === undefined && single["apiKey"] !== undefined)
    throw new Error(`${file} has an unknown format: move it away, then save the key again`);
  return {
    current: typeof current === "string" ? current : undefined,
    keys: Object.fromEntries(
      Object.entries(asObject(keys)).flatMap(([name, kept]) => {
        const { url, apiKey } = asObject(kept);
        return typeof url === "string" && typeof apiKey === "string"
          ? [[name, { url, apiKey }]]
          : [];
      }),
    ),
  };
}

const asObject = (value: unknown): Record<string, unknown> =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};

const withoutSlash = (url: string): string => url.replace(/\/+$/, "");
