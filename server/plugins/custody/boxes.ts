/** AES-256-GCM encryption of one secret, bound to a name, and the errors of decrypting one. */
import { randomBytes, createCipheriv, createDecipheriv } from "node:crypto";

const ALGORITHM = "aes-256-gcm";
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
export const KEY_BYTES = 32;

/** A wallet that cannot be decrypted, or does not match its claims. Nothing is signed. */
export class CustodyError extends Error {
  override name = "CustodyError";
}

/** The stored rows do not match the owner's signature: this raises an alarm. */
export class NotSignedFor extends CustodyError {}

/** Format: nonce | tag | ciphertext */
export function encrypt(key: Uint8Array, secret: Uint8Array, name: Buffer): Uint8Array {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(name);
  const body = Buffer.concat([cipher.update(secret), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), body]);
}

/** Throws if the box belongs to another key or name, or was altered. */
export function decrypt(key: Uint8Array, box: Uint8Array, name: Buffer): Uint8Array {
  if (box.length < NONCE_BYTES + TAG_BYTES) throw new RangeError(`${box.length} bytes`);
  const nonce = box.subarray(0, NONCE_BYTES);
  const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
  decipher.setAAD(name);
  decipher.setAuthTag(box.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
  // In counter mode, update returns the whole plaintext; final only checks the tag.
  const secret = decipher.update(box.subarray(NONCE_BYTES + TAG_BYTES));
  try {
    decipher.final();
  } catch (error) {
    secret.fill(0);
    throw error;
  }
  return secret;
}
