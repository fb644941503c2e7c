/**
 * Secrets by files, as orchestrators hand them out: `MASTER_KEYS_FILE=/run/secrets/master-keys` is MASTER_KEYS. A file is
 * seen by its owner alone, while an environment is inherited by every child and shown by `docker inspect`.
 */
import { readFileSync } from "node:fs";

type Environment = Record<string, string | undefined>;

/** A file of a secret is a line or two; more is the wrong file. */
const MAX_BYTES = 64 * 1024;

/** Keys that may be given so; of a network's, each by its chain id. */
const SECRETS = [
  "DATABASE_URL",
  "RELAYER_PRIVATE_KEYS",
  "MASTER_KEYS",
  "FACILITATOR_API_KEYS",
  "METRICS_TOKEN",
  "SMTP_URL",
] as const;
const FILE_KEY = /^RPC_URL_[0-9]+_FILE$/;

/** The environment with what its files hold. What cannot be read is a problem; no content is ever repeated in one. */
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
  // Not a copy: a reader of keys by name sees which are read.
  return Object.assign(Object.create(environment) as Environment, read);
}

/** Without the end of its last line, which editors and `echo` leave there. */
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
