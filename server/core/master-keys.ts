/** The keys that wrap the agents' wallet keys, and the keys of the accounts that pay gas. */
import { hasTwice, listed, valid } from "./setting.ts";
import { isPrivateKey } from "./signatures.ts";

/** 32 bytes in this process, or a key that never leaves the KMS that is named. */
export type MasterKey =
  | { kid: string; key: Uint8Array; kmsKeyId?: undefined }
  | { kid: string; key?: undefined; kmsKeyId: string };

export const MASTER_KEY_HINT = "create one with: openssl rand -base64 32";
/** A key's id or ARN, including multi-region keys. */
const KMS_KEY_ID =
  /^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key\/)?(mrk-[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;
const KMS_KEY_HINT =
  "which is not the id or ARN of a KMS key (aliases are not accepted because they can change)";
const MASTER_KEY = /^([A-Za-z0-9_-]{1,32}):(?:kms:(.*)|([A-Za-z0-9+/]+={0,2}))$/;

/** `kid:base64,kid:kms:id,...` */
export function readMasterKeys(text: string): MasterKey[] {
  const reasons: string[] = [];
  const keys: MasterKey[] = [];
  for (const entry of listed(text)) {
    const [, kid, kmsKeyId, encoded = ""] = MASTER_KEY.exec(entry) ?? [];
    if (kid === undefined) {
      reasons.push("has an entry that is not kid:base64 or kid:kms:<key id or ARN>");
      continue;
    }
    const key = new Uint8Array(Buffer.from(encoded, "base64"));
    if (keys.some((other) => other.kid === kid)) reasons.push(`names "${kid}" twice`);
    if (kmsKeyId !== undefined) {
      if (!KMS_KEY_ID.test(kmsKeyId)) reasons.push(`has the key "${kid}", ${KMS_KEY_HINT}`);
    } else if (key.length !== 32)
      reasons.push(
        `has the key "${kid}" of ${key.length} bytes instead of 32 (${MASTER_KEY_HINT})`,
      );
    // 32 random bytes have about 30 distinct values; patterns and examples have few.
    else if (new Set(key).size < 20 || isSequence(key) || isText(key))
      reasons.push(
        `has the key "${kid}", which looks like an example and not random (${MASTER_KEY_HINT})`,
      );
    keys.push(kmsKeyId === undefined ? { kid, key } : { kid, kmsKeyId });
  }
  return valid(keys, reasons);
}

const isSequence = (key: Uint8Array): boolean => {
  const step = ((key[1] ?? 0) - (key[0] ?? 0)) & 255;
  return key.every((byte, index) => index === 0 || ((byte - (key[index - 1] ?? 0)) & 255) === step);
};
const isText = (key: Uint8Array): boolean => key.every((byte) => byte >= 0x20 && byte < 0x7f);

export function readPrivateKeys(text: string): `0x${string}`[] {
  const keys = listed(text) as `0x${string}`[];
  const reasons: string[] = [];
  if (keys.some((key) => !/^0x[0-9a-fA-F]{64}$/.test(key)))
    reasons.push("must list 0x-prefixed 32-byte keys");
  if (hasTwice(keys.map((key) => key.toLowerCase()))) reasons.push("lists a key twice");
  return valid(keys, reasons);
}

export function readPrivateKey(text: string): Uint8Array | undefined {
  if (!/^0x[0-9a-fA-F]{64}$/.test(text)) return undefined;
  const key = Buffer.from(text.slice(2), "hex");
  return isPrivateKey(key) ? key : undefined;
}

export function readKmsKeys(text: string): string[] {
  const keys = listed(text);
  const reasons = keys
    .filter((key) => !KMS_KEY_ID.test(key))
    .map((key) => `has "${key}", ${KMS_KEY_HINT}`);
  if (hasTwice(keys)) reasons.push("lists a key twice");
  return valid(keys, reasons);
}
