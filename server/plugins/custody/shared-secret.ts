/**
 * Secrets that replicas have in common and that last: random, and kept sealed in the database, since a master key may be
 * where nothing can be derived from it.
 */
import { randomBytes } from "node:crypto";
import { ConfigError } from "../../config.ts";
import { kidOfSealed, type SecretBox } from "./secret-box.ts";

export interface SharedSecretsDeps {
  box: SecretBox;
  find(purpose: string): Promise<Uint8Array | undefined>;
  keep(purpose: string, sealed: Uint8Array, instead: Uint8Array | undefined): Promise<boolean>;
  /** The master keys that are configured. */
  kids(): Promise<readonly string[]>;
  /** Keys cannot be reached now. */
  isAway(error: unknown): boolean;
  sleep(ms: number): Promise<void>;
  /** One that does not open under its own master key was altered, and is given up for a new one. */
  onLost(purpose: string, error: unknown): void;
}

const BYTES = 32;
/** A service may start together with what keeps its keys. */
const PATIENCE_MS = 20_000;
const AGAIN_MS = 500;

export async function sharedSecret(deps: SharedSecretsDeps, purpose: string): Promise<Uint8Array> {
  const name = nameOf(purpose);
  const untilMs = performance.now() + PATIENCE_MS;
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

/** A key that is missing by mistake must not cost what it sealed. */
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

/** What it is sealed as. */
export const nameOf = (purpose: string): string => `service|${purpose}`;
