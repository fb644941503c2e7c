// The data folder: locked by one process, with files written atomically, and the generated secrets.
import { mkdirSync, statSync } from "node:fs";
import { open, rename, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isRecord } from "../core/foreign-text.ts";
import { newVapidKeys } from "../core/push-settings.ts";
import { lockDataDir } from "./data-dir-lock.mjs";
import { plainly, StartError } from "./start-error.ts";
import { randomBytes } from "node:crypto";
import { Type, type Static } from "typebox";
import { Value } from "typebox/value";
import { generatePrivateKey } from "viem/accounts";

/** Other users may pass through to what they own (Postgres may run as another user), but not list the folder. */
const DATA_DIR_MODE = 0o711;

/** Creates the folder if it is missing, and locks it until released. */
export function takeDataDir(dataDir: string): { release: () => void } {
  try {
    makeFolder(dataDir);
    const lock = lockDataDir(dataDir);
    if ("release" in lock) return lock;
    throw new StartError(
      `another Purser (process ${lock.heldBy}) already uses ${dataDir}. Stop it, or set DATA_DIR to another folder.`,
    );
  } catch (error) {
    throw plainly(error, dataDir);
  }
}

/**
 * One folder at a time: Node's recursive mkdir reports a wrong reason on a read-only disk, and never returns on /proc.
 */
function makeFolder(path: string): void {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isDirectory()) return;
  if (found === undefined) makeFolder(dirname(path));
  mkdirSync(path, { mode: DATA_DIR_MODE });
}

/** Replaces a file completely or not at all, even if the power fails. */
export async function writeFileAtomic(
  path: string,
  content: string | Uint8Array,
  mode = 0o600,
): Promise<void> {
  const draft = `${path}.new`;
  const file = await open(draft, "w", mode);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(draft, path);
}

// The keys of local mode: generated once, and kept in one file that only its owner can read.

const PrivateKey = Type.Unsafe<`0x${string}`>(Type.String({ pattern: "^0x[0-9a-f]{64}$" }));

const SecretsSchema = Type.Object({
  postgresPassword: Type.String({ minLength: 20 }),
  relayerPrivateKeys: Type.Array(PrivateKey, { minItems: 1 }),
  /** `kid:base64`, in the form of MASTER_KEYS; after a rotation there may be several. */
  masterKeys: Type.String({ minLength: 1 }),
  masterKeyActive: Type.String({ minLength: 1 }),
  faucetPrivateKey: PrivateKey,
  demoOwnerPrivateKey: PrivateKey,
  receiverAuthorizerKey: PrivateKey,
  channelKey: PrivateKey,
  /** In the form of VAPID_KEYS. */
  vapidKeys: Type.String({ minLength: 1 }),
});

export type Secrets = Static<typeof SecretsSchema>;

export async function loadSecrets(dataDir: string): Promise<Secrets> {
  const path = join(dataDir, "secrets.json");
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
  if (text === undefined) {
    const made = makeSecrets();
    await writeSecrets(path, made);
    return made;
  }
  const parsed = parseJson(text);
  if (Value.Check(SecretsSchema, parsed)) return parsed;
  // A file of a release that did not have this key yet.
  const completed = isRecord(parsed) && { ...newerSecrets(), ...parsed };
  if (Value.Check(SecretsSchema, completed)) {
    await writeSecrets(path, completed);
    return completed;
  }
  // Never replaced: without the old master key the agents' wallets are lost.
  throw new StartError(
    `${path} is damaged. Restore it, or start fresh with: npm run reset (deletes the local data).`,
  );
}

const writeSecrets = (path: string, secrets: Secrets): Promise<void> =>
  writeFileAtomic(path, `${JSON.stringify(secrets, null, 2)}\n`, 0o600);

const newerSecrets = (): Pick<Secrets, "receiverAuthorizerKey" | "channelKey" | "vapidKeys"> => ({
  receiverAuthorizerKey: generatePrivateKey(),
  channelKey: generatePrivateKey(),
  vapidKeys: newVapidKeys(),
});

function makeSecrets(): Secrets {
  return {
    postgresPassword: randomBytes(24).toString("hex"),
    relayerPrivateKeys: [generatePrivateKey(), generatePrivateKey()],
    masterKeys: `local-1:${randomBytes(32).toString("base64")}`,
    masterKeyActive: "local-1",
    faucetPrivateKey: generatePrivateKey(),
    demoOwnerPrivateKey: generatePrivateKey(),
    ...newerSecrets(),
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
