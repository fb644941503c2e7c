/**
 * Reads secrets from files, as orchestrators provide them: `MASTER_KEYS_FILE=/run/secrets/master-keys` sets
 * MASTER_KEYS. Only its owner can read a file, while every child process inherits the environment, and `docker inspect`
 * shows it.
 */
import { readFileSync } from "node:fs";

type Environment = Record<string, string | undefined>;

/** A secret's file has a line or two; a larger one is the wrong file. */
const MAX_BYTES = 64 * 1024;

/** Keys that can be read from a file; those of a network also with its chain id. */
const SECRETS = [
  "DATABASE_URL",
  "RELAYER_PRIVATE_KEYS",
  "MASTER_KEYS",
  "FACILITATOR_API_KEYS",
  "METRICS_TOKEN",
  "SMTP_URL",
] as const;
const FILE_KEY = /^RPC_URL_[0-9]+_FILE$/;

/**
 * The environment with the content of the files. Unreadable files are added to `problems`; their content is never
 * repeated.
 */
export function withSecretFiles(environment: Environment, problems: string[]): Environment {
  const read: Environment = {};
  const names = [
    ...SECRETS.map((secret) => `${secret}_FILE`),
    ...Object.keys(environment).filter((key) => FILE_KEY.test(key)),
  ];
  for (const name of names) {
    const path = environment[name];
    // An empty value means "not set", as everywhere.
    if (path === undefined || path === "") continue;
    const key = name.slice(0, -"_FILE".length);
    if ((environment[key] ?? "") !== "")
      problems.push(`${key} and ${name} are both set; set only one of them`);
    const content = contentOf(path);
    if (typeof content === "string") read[key] = content;
    else problems.push(`${name} names a file that ${content.trouble}`);
  }
  // Not a copy, so that a reader that records the keys it reads sees the right ones.
  return Object.assign(Object.create(environment) as Environment, read);
}

/** The content without the final newline that editors and `echo` add. */
function contentOf(path: string): string | { trouble: string } {
  try {
    const bytes = readFileSync(path);
    if (bytes.length > MAX_BYTES) return { trouble: `is larger than ${MAX_BYTES} bytes` };
    const text = bytes.toString("utf8").trim();
    return text === "" ? { trouble: "is empty" } : text;
  } catch (error) {
    return { trouble: `cannot be read (${(error as NodeJS.ErrnoException).code ?? "unknown"})` };
  }
}
