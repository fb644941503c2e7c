import { hkdfSync, randomBytes } from "node:crypto";
import {
  CustodyError,
  decrypt,
  encrypt,
  KEY_BYTES,
  NotSignedFor,
  type Bound,
  type KeyRing,
} from "./envelope.ts";

/**
 * Encrypts small secrets that the service itself must read again (such as those of webhooks) for the database. The
 * purpose names the owner and the use of a secret, and a secret can be decrypted only with the same purpose. Promises,
 * because the key may be in a KMS or in the custody process.
 */
export interface SecretBox {
  seal(purpose: string, plain: Uint8Array): Promise<Uint8Array>;
  open(purpose: string, sealed: Uint8Array): Promise<Uint8Array>;
}

/** Encrypted with a key derived from a local master key, or with its own key that a KMS has wrapped. */
const DERIVED = 1;
const WRAPPED = 2;

/**
 * Format: version | length of kid | kid | [length of the wrapped key, 2 bytes | wrapped key] | nonce | tag | ciphertext
 */
export function createSecretBox(ring: KeyRing): SecretBox {
  const derived = new Map<string, Uint8Array>();
  const derivedOf = (kid: string, master: Uint8Array): Uint8Array => {
    const known = derived.get(kid);
    if (known) return known;
    const key = new Uint8Array(hkdfSync("sha256", master, "", "purser:secret-box:v1", 32));
    derived.set(kid, key);
    return key;
  };
  return {
    async seal(purpose, plain) {
      const { kid, key } = ring.active;
      if (key !== undefined)
        return Buffer.concat([
          head(DERIVED, kid),
          encrypt(derivedOf(kid, key), plain, nameOf(kid, purpose)),
        ]);
      const dataKey = randomBytes(KEY_BYTES);
      try {
        const { wrapped } = await ring.wrap(dataKey, boundTo(purpose));
        const length = Buffer.alloc(2);
        length.writeUInt16BE(wrapped.length);
        const box = encrypt(dataKey, plain, nameOf(kid, purpose));
        return Buffer.concat([head(WRAPPED, kid), length, wrapped, box]);
      } finally {
        dataKey.fill(0);
      }
    },
    async open(purpose, sealed) {
      const { version, kid, box, wrapped } = readSealed(sealed);
      const { key: master } = ring.get(kid);
      try {
        if (version === DERIVED) {
          if (master === undefined) throw new CustodyError(`master key "${kid}" is in a KMS now`);
          return decrypt(derivedOf(kid, master), box, nameOf(kid, purpose));
        }
        const key = await ring.unwrap({ kid, wrapped }, boundTo(purpose));
        try {
          return decrypt(key, box, nameOf(kid, purpose));
        } finally {
          key.fill(0);
        }
      } catch (error) {
        // A KMS that is unreachable proves nothing about the secret.
        if (error instanceof Error && error.name === "ApiError") throw error;
        throw new CustodyError(
          `a sealed secret does not open as "${purpose}": it was altered, or was sealed for a different purpose`,
          { cause: error instanceof NotSignedFor ? error.cause : error },
        );
      }
    },
  };
}

/** The master key that decrypts it. */
export const kidOfSealed = (sealed: Uint8Array): string => readSealed(sealed).kid;

const head = (version: number, kid: string): Buffer =>
  Buffer.concat([Buffer.from([version, kid.length]), Buffer.from(kid)]);

function readSealed(sealed: Uint8Array): {
  version: number;
  kid: string;
  wrapped: Uint8Array;
  box: Uint8Array;
} {
  const bytes = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.length);
  const [version = 0, kidLength = 0] = bytes;
  const start = 2 + kidLength;
  const isShort = kidLength === 0 || bytes.length < start + 2;
  if ((version !== DERIVED && version !== WRAPPED) || isShort)
    throw new CustodyError("a sealed secret has an invalid form");
  const wrappedEnd = version === WRAPPED ? start + 2 + bytes.readUInt16BE(start) : start;
  return {
    version,
    kid: bytes.toString("latin1", 2, start),
    wrapped:
      version === WRAPPED ? bytes.subarray(start + 2, wrappedEnd) : bytes.subarray(start, start),
    box: bytes.subarray(wrappedEnd),
  };
}

/** A kid never contains this separator. */
const nameOf = (kid: string, purpose: string): Buffer =>
  Buffer.from(`purser:secret:v1|${kid}|${purpose}`);
const boundTo = (purpose: string): Bound => ({
  of: "secret",
  name: (kid) => Buffer.from(`purser:secret-key:v1|${kid}|${purpose}`),
});
