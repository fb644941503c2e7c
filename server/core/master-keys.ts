/** Parses MASTER_KEYS, the keys that wrap the agents' wallet keys. */

/** 32 bytes in this process, or a key that never leaves the KMS that is named. */
export type MasterKey =
  | { kid: string; key: Uint8Array; kmsKeyId?: undefined }
  | { kid: string; key?: undefined; kmsKeyId: string };

const MASTER_KEY_HINT = "create one with: openssl rand -base64 32";
/** A key's id or ARN, including multi-region keys. */
const KMS_KEY_ID =
  /^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key\/)?(mrk-[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;
export const KMS_KEY_HINT =
  "is not the id or ARN of a KMS key (aliases are not accepted because they can change)";
export const isKmsKeyId = (text: string): boolean => KMS_KEY_ID.test(text);

/** `kid:base64,kid:kms:id,...`. Problems are added to `problems`; a key is never repeated in them. */
export function readMasterKeys(
  text: string | undefined,
  isLocal: boolean,
  problems: string[],
): MasterKey[] {
  const entries = (text ?? "")
    .split(",")
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
  if (entries.length === 0 && !isLocal)
    problems.push(`MASTER_KEYS is missing (kid:base64 of 32 random bytes; ${MASTER_KEY_HINT})`);
  const keys: MasterKey[] = [];
  for (const entry of entries) {
    const [, name, kmsKeyId] = /^([A-Za-z0-9_-]{1,32}):kms:(.*)$/.exec(entry) ?? [];
    if (name !== undefined && kmsKeyId !== undefined) {
      if (!isKmsKeyId(kmsKeyId)) problems.push(`MASTER_KEYS: "${name}" ${KMS_KEY_HINT}`);
      if (keys.some(({ kid }) => kid === name)) problems.push(`MASTER_KEYS names "${name}" twice`);
      keys.push({ kid: name, kmsKeyId });
      continue;
    }
    const [, kid, encoded] = /^([A-Za-z0-9_-]{1,32}):([A-Za-z0-9+/]+={0,2})$/.exec(entry) ?? [];
    if (kid === undefined || encoded === undefined) {
      problems.push("MASTER_KEYS has an entry that is not kid:base64 or kid:kms:<key id or ARN>");
      continue;
    }
    const key = new Uint8Array(Buffer.from(encoded, "base64"));
    if (key.length !== 32)
      problems.push(
        `MASTER_KEYS: key "${kid}" has ${key.length} bytes instead of 32 (${MASTER_KEY_HINT})`,
      );
    // 32 random bytes have about 30 distinct values; patterns and examples have few.
    else if (new Set(key).size < 20 || isSequence(key) || isText(key))
      problems.push(
        `MASTER_KEYS: key "${kid}" looks like an example and not random (${MASTER_KEY_HINT})`,
      );
    if (keys.some((other) => other.kid === kid)) problems.push(`MASTER_KEYS names "${kid}" twice`);
    keys.push({ kid, key });
  }
  return keys;
}

const isSequence = (key: Uint8Array): boolean => {
  const step = ((key[1] ?? 0) - (key[0] ?? 0)) & 255;
  return key.every((byte, index) => index === 0 || ((byte - (key[index - 1] ?? 0)) & 255) === step);
};
const isText = (key: Uint8Array): boolean => key.every((byte) => byte >= 0x20 && byte < 0x7f);
