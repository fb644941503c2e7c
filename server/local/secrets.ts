// The local world's keys: made once, kept in one file only its owner can read.
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Type, type Static } from "typebox";
import { Value } from "typebox/value";
import { generatePrivateKey } from "viem/accounts";
import { StartError } from "./start-error.ts";
import { writeFileAtomic } from "./data-dir.ts";

const PrivateKey = Type.Unsafe<`0x${string}`>(Type.String({ pattern: "^0x[0-9a-f]{64}$" }));

const SecretsSchema = Type.Object({
  postgresPassword: Type.String({ minLength: 20 }),
  relayerPrivateKeys: Type.Array(PrivateKey, { minItems: 1 }),
  /** `kid:base64`, as MASTER_KEYS has it; a rotation may have left several. */
  masterKeys: Type.String({ minLength: 1 }),
  masterKeyActive: Type.String({ minLength: 1 }),
  faucetPrivateKey: PrivateKey,
  demoOwnerPrivateKey: PrivateKey,
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
    await writeFileAtomic(path, `${JSON.stringify(made, null, 2)}\n`, 0o600);
    return made;
  }
  const parsed = parseJson(text);
  if (Value.Check(SecretsSchema, parsed)) return parsed;
  // Never replaced: without the old master key the agents' wallets are lost.
  throw new StartError(
    `${path} is damaged. Restore it, or start fresh with: npm run reset (deletes the local data).`,
  );
}

function makeSecrets(): Secrets {
  return {
    postgresPassword: randomBytes(24).toString("hex"),
    relayerPrivateKeys: [generatePrivateKey(), generatePrivateKey()],
    masterKeys: `local-1:${randomBytes(32).toString("base64")}`,
    masterKeyActive: "local-1",
    faucetPrivateKey: generatePrivateKey(),
    demoOwnerPrivateKey: generatePrivateKey(),
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
