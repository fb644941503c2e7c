/** The VAPID key pair of web push (RFC 8292): VAPID_KEYS, or generated in local mode. */
import { createECDH } from "node:crypto";

export interface VapidKeys {
  /** The uncompressed P-256 point, in base64url: browsers subscribe with it. */
  publicKey: string;
  privateKey: string;
}

const CURVE = "prime256v1";

/** `public:private`. Undefined: not of this form, or not of one pair. */
export function readVapidKeys(text: string): VapidKeys | undefined {
  const [, publicKey, privateKey] = /^([\w-]{87}):([\w-]{43})$/.exec(text) ?? [];
  if (publicKey === undefined || privateKey === undefined) return undefined;
  try {
    const pair = createECDH(CURVE);
    pair.setPrivateKey(privateKey, "base64url");
    return pair.getPublicKey("base64url") === publicKey ? { publicKey, privateKey } : undefined;
  } catch {
    return undefined;
  }
}

export function newVapidKeys(): string {
  const pair = createECDH(CURVE);
  pair.generateKeys();
  // A private key with leading zeros is shorter than the form allows.
  const privateKey = Buffer.concat([Buffer.alloc(32), pair.getPrivateKey()]).subarray(-32);
  return `${pair.getPublicKey("base64url")}:${privateKey.toString("base64url")}`;
}

/** The browser's public key of a subscription is a point of this curve. */
export function isPushKey(p256dh: string): boolean {
  try {
    const pair = createECDH(CURVE);
    pair.generateKeys();
    return pair.computeSecret(p256dh, "base64url").length === 32;
  } catch {
    return false;
  }
}
