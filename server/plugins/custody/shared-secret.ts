/**
 * Permanent secrets that all replicas share: random and stored encrypted in the database, because a master key in a KMS
 * cannot derive them.
 */
import { randomBytes } from "node:crypto";
import { ConfigError } from "../../config.ts";
import { kidOfSealed, type SecretBox } from "./secret-box.ts";

interface SharedSecretsDeps {
  box: SecretBox;
  find(purpose: string): Promise<Uint8Array | undefined>;
  keep(purpose: string, sealed: Uint8Array, instead: Uint8Array | undefined): Promise<boolean>;
  /** The names of the configured master keys. */
  kids(): Promise<readonly string[]>;
  /** True if the keys are unavailable now. */
  isAway(error: unknown): boolean;
  sleep(ms: number): Promise<void>;
  /** Called if a secret cannot be decrypted with its own master key: it was altered, and is replaced by a new one. */
  onLost(purpose: string, error: unknown): void;
}

const BYTES = 32;
/** The service may start at the same time as its KMS or custody process, so it retries for this long. */
const TIMEOUT_MS = 20_000;
const AGAIN_MS = 500;

export async function sharedSecret(deps: SharedSecretsDeps, purpose: string): Promise<Uint8Array> {
  const name = nameOf(purpose);
  const untilMs = performance.now() + TIMEOUT_MS;
  for (;;) {
    try {
      const known = await deps.find(purpose);
      if (known) {
        try {
          return await deps.box.open(name, known);
        } catch (error) {
          if (deps.isAway(error)) throw error;
          await assertConfigured(deps, purpose, kidOfSealed(known));
          deps.onLost(purpose, error);
        }
      }
      const secret = randomBytes(BYTES);
      if (await deps.keep(purpose, await deps.box.seal(name, secret), known)) return secret;
    } catch (error) {
      if (!deps.isAway(error) || performance.now() > untilMs) throw error;
      await deps.sleep(AGAIN_MS);
    }
  }
}

/** A key that is missing by mistake must not cost the secrets that it encrypted. */
async function assertConfigured(
  deps: SharedSecretsDeps,
  purpose: string,
  kid: string,
): Promise<void> {
  if ((await deps.kids()).includes(kid)) return;
  throw new ConfigError([
    `the shared secret "${purpose}" is sealed under master key "${kid}", which is not in MASTER_KEYS: put it back, and run npm run keys:rotate before it is taken out. Is it lost for good, delete the row of service_secrets, and a new secret is made`,
  ]);
}

/** The purpose under which the secret is encrypted. */
export const nameOf = (purpose: string): string => `service|${purpose}`;
