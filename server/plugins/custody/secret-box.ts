import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { CustodyError, type KeyRing } from "./envelope.ts";

/**
 * Small secrets that the service itself must read again (those of webhooks), sealed for the database. The purpose says
 * whose it is and what for, and nothing opens under another. Promises, since a key may be somewhere else than here.
 */
export interface SecretBox {
  seal(purpose: string, plain: Uint8Array): Promise<Uint8Array>;
  open(purpose: string, sealed: Uint8Array): Promise<Uint8Array>;
}

const ALGORITHM = "aes-256-gcm";
const VERSION = 1;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** version | length of kid | kid | nonce | tag | ciphertext, under a key of its own derived from the master key. */
export function createSecretBox(ring: KeyRing): SecretBox {
  const derived = new Map<string, Uint8Array>();
  const keyOf = (kid: string): Uint8Array => {
    const known = derived.get(kid);
    if (known) return known;
    const key = new Uint8Array(hkdfSync("sha256", ring.get(kid), "", "purser:secret-box:v1", 32));
    derived.set(kid, key);
    return key;
  };
  return {
    async seal(purpose, plain) {
      const kid = Buffer.from(ring.active.kid);
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv(ALGORITHM, keyOf(ring.active.kid), nonce, {
        authTagLength: TAG_BYTES,
      });
      cipher.setAAD(nameOf(ring.active.kid, purpose));
      const body = Buffer.concat([cipher.update(plain), cipher.final()]);
      return Buffer.concat([
        Buffer.from([VERSION, kid.length]),
        kid,
        nonce,
        cipher.getAuthTag(),
        body,
      ]);
    },
    async open(purpose, sealed) {
      const { kid, box } = readSealed(sealed);
      const nonce = box.subarray(0, NONCE_BYTES);
      const key = keyOf(kid);
      try {
        const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
        decipher.setAAD(nameOf(kid, purpose));
        decipher.setAuthTag(box.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
        const body = decipher.update(box.subarray(NONCE_BYTES + TAG_BYTES));
        return Buffer.concat([body, decipher.final()]);
      } catch (error) {
        throw new CustodyError(
          `a sealed secret does not open as "${purpose}": it was altered, or sealed for something else`,
          { cause: error },
        );
      }
    },
  };
}

/** Which master key opens it. */
export const kidOfSealed = (sealed: Uint8Array): string => readSealed(sealed).kid;

function readSealed(sealed: Uint8Array): { kid: string; box: Uint8Array } {
  const [version, kidLength = 0] = sealed;
  const start = 2 + kidLength;
  if (version !== VERSION || kidLength === 0 || sealed.length < start + NONCE_BYTES + TAG_BYTES)
    throw new CustodyError("a sealed secret is none");
  return {
    kid: Buffer.from(sealed.subarray(2, start)).toString("latin1"),
    box: sealed.subarray(start),
  };
}

/** The kid holds no such sign. */
const nameOf = (kid: string, purpose: string): Buffer =>
  Buffer.from(`purser:secret:v1|${kid}|${purpose}`);
