/** The service's URL and the agent's key: from the environment, else from the user's configuration file. */
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

/** All stored keys by name, so that storing another key does not replace one. */
interface Saved {
  /** The key that is used where none is named. */
  current: string | undefined;
  keys: Record<string, Settings>;
}

const DEFAULT_URL = "http://localhost:3000";
/** Shorter texts are not keys of a service, and their name would reveal too much of them. */
const SHORTEST_KEY = 24;

export const homeOf = (env: Env): string => env["HOME"] || env["USERPROFILE"] || homedir();

const settingsFile = (env: Env): string =>
  join(env["XDG_CONFIG_HOME"] || join(homeOf(env), ".config"), "purser", "config.json");

/**
 * A stored key is sent only to the service it was issued by. A connected program names its own key
 * (PURSER_KEY_NAME): it pays from that wallet or from none, even if the environment contains another key.
 */
export function readServiceSettings(env: Env): Settings {
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

/** Why there is no key, where one is needed. A stored key of another service is named with its service. */
export function missingKey(env: Env, url: string): string {
  const { current, keys } = readSaved(env);
  const other = keys[current ?? ""]?.url;
  return other === undefined || withoutSlash(other) === url
    ? "set AGENT_API_KEY to the agent's key"
    : `the key in ${settingsFile(env)} belongs to ${withoutSlash(other)}, and is not sent to ${url}: set AGENT_API_KEY to a key of ${url}, or PURSER_URL to ${withoutSlash(other)}`;
}

/** A name for the key, as the owner's page shows it; the key cannot be derived from it. */
export function keyName({ apiKey }: Settings): string {
  if (apiKey.length < SHORTEST_KEY) throw new Error("AGENT_API_KEY is not an agent's key");
  return `${apiKey.slice(0, 11)}-${apiKey.slice(-4)}`;
}

/** Adds the key to those stored. It becomes the current one if it is the first, or with `asCurrent`. */
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

/** Writes the file atomically. A symbolic link stays a link, and its target is written. */
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
