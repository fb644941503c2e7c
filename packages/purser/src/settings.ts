/** Where the service is, and the agent's key: from the environment, else from a file of the user's own. */
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

export type Env = Record<string, string | undefined>;

export interface Settings {
  url: string;
  apiKey: string;
}

const DEFAULT_URL = "http://localhost:3000";

export const homeOf = (env: Env): string => env["HOME"] || env["USERPROFILE"] || homedir();

export const settingsFile = (env: Env): string =>
  join(env["XDG_CONFIG_HOME"] || join(homeOf(env), ".config"), "purser", "config.json");

/** The key of the file is for the service it was made for, and goes to no other. */
export function readSettings(env: Env): Settings {
  const saved = readSaved(env);
  const url = withoutSlash(env["PURSER_URL"] || saved.url || DEFAULT_URL);
  const ownKey =
    saved.url !== undefined && withoutSlash(saved.url) === url ? saved.apiKey : undefined;
  return { url, apiKey: env["AGENT_API_KEY"] || ownKey || "" };
}

export function saveSettings(env: Env, settings: Settings): string {
  const file = settingsFile(env);
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  writeFileSync(file, `${JSON.stringify(settings, null, 2)}\n`, { mode: 0o600 });
  // The mode above is only that of a new file.
  chmodSync(file, 0o600);
  return file;
}

function readSaved(env: Env): Partial<Settings> {
  const file = settingsFile(env);
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch {
    return {};
  }
  try {
    const { url, apiKey } = JSON.parse(text) as Record<string, unknown>;
    return {
      ...(typeof url === "string" && { url }),
      ...(typeof apiKey === "string" && { apiKey }),
    };
  } catch {
    throw new Error(`${file} is not JSON: mend or remove it`);
  }
}

const withoutSlash = (url: string): string => url.replace(/\/+$/, "");
