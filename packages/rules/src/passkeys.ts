/**
 * The signature of a passkey (WebAuthn) under an owner's order, in one text: it fits wherever a wallet's signature does. The
 * challenge that was signed is the digest of the order.
 *
 * Bytes: "passkey1", x, y, r, s (32 each), the length of the authenticator data (2), that data, and the client data (JSON).
 */

/** The `chainId` of an owner with passkeys and no wallet. Its address is the hash of its first passkey, and holds no money. */
export const PASSKEYS_CHAIN = 2_147_483_647;

export interface PublicKey {
  /** 32 bytes each, as 0x and lower-case digits. */
  x: string;
  y: string;
}

export interface PasskeySignature extends PublicKey {
  r: string;
  s: string;
  authenticatorData: Uint8Array;
  /** JSON, exactly as it was signed. */
  clientData: Uint8Array;
}

const MAGIC = "706173736b657931";
const PREFIX = `0x${MAGIC}`;
const WORD = 64;
const NUMBERS = 4;
const LENGTH_DIGITS = 4;
const HEAD = MAGIC.length + NUMBERS * WORD + LENGTH_DIGITS;
const MAX_LENGTH = 0xffff;

export const isPasskeySignature = (signature: string): boolean =>
  signature.slice(0, PREFIX.length).toLowerCase() === PREFIX;

export function writePasskeySignature(signed: PasskeySignature): string {
  const { x, y, r, s, authenticatorData, clientData } = signed;
  if (authenticatorData.length > MAX_LENGTH) throw new Error("the authenticator data is too long");
  const numbers = [x, y, r, s].map((word) => {
    const digits = word.replace(/^0x/, "");
    if (!/^[0-9a-f]{64}$/.test(digits)) throw new Error("a number of a passkey has 64 digits");
    return digits;
  });
  const length = authenticatorData.length.toString(16).padStart(LENGTH_DIGITS, "0");
  return `${PREFIX}${numbers.join("")}${length}${toDigits(authenticatorData)}${toDigits(clientData)}`;
}

/** Undefined if it is no passkey's signature. Whether it is valid is not checked. */
export function readPasskeySignature(signature: string): PasskeySignature | undefined {
  const digits = signature.slice(2).toLowerCase();
  if (!isPasskeySignature(signature) || digits.length < HEAD || !/^(?:[0-9a-f]{2})+$/.test(digits))
    return undefined;
  const [x = "", y = "", r = "", s = ""] = Array.from(
    { length: NUMBERS },
    (_, index) => `0x${digits.slice(MAGIC.length + index * WORD).slice(0, WORD)}`,
  );
  const length = Number.parseInt(digits.slice(HEAD - LENGTH_DIGITS, HEAD), 16);
  const rest = toBytes(digits.slice(HEAD));
  if (length > rest.length) return undefined;
  const authenticatorData = rest.subarray(0, length);
  return { x, y, r, s, authenticatorData, clientData: rest.subarray(length) };
}

const toDigits = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

const toBytes = (digits: string): Uint8Array =>
  Uint8Array.from({ length: digits.length / 2 }, (_, index) =>
    Number.parseInt(digits.slice(index * 2, index * 2 + 2), 16),
  );
