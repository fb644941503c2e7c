/**
 * Secrets that replicas have in common and that last: random, and kept sealed in the database, since a master key may be
 * where nothing can be derived from it.
 */
import { randomBytes } from "node:crypto";
import type { SecretBox } from "./secret-box.ts";

export interface SharedSecretsDeps {
  box: SecretBox;
  find(purpose: string): Promise<Uint8Array | undefined>;
  keep(purpose: string, sealed: Uint8Array, instead: Uint8Array | undefined): Promise<boolean>;
  /** Keys cannot be reached now. */
  isAway(error: unknown): boolean;
  sleep(ms: number): Promise<void>;
  /** One that does not open any more is given up for a new one: its master key is gone. */
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

/** What it is sealed as. */
export const nameOf = (purpose: string): string => `service|${purpose}`;
