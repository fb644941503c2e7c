/** Signatures of passkeys: P-256 by Node's own crypto, and WebAuthn's rules about what a browser and a device must have said. */
import { createHash, createPublicKey, verify } from "node:crypto";
import type { Address, Hex } from "viem";
import { isRecord } from "../../packages/paywall/src/foreign-json.ts";
import { type PublicKey, readPasskeySignature } from "../../packages/rules/src/passkeys.ts";
import { keccak } from "./keccak.ts";

export * from "../../packages/rules/src/passkeys.ts";

/** Where passkeys sign: the domain they belong to (WebAuthn's relying party), and the origins of its pages. */
export interface PasskeyPlaces {
  domain: string;
  origins: ReadonlySet<string>;
}

const bytesOf = (...words: string[]): Buffer =>
  Buffer.concat(words.map((word) => Buffer.from(word.slice(2), "hex")));
const base64Url = (hex: string): string => Buffer.from(hex.slice(2), "hex").toString("base64url");
const sha256 = (bytes: Uint8Array | string): Buffer => createHash("sha256").update(bytes).digest();

/** The address of an owner whose first passkey this is. */
export const addressOfPasskey = ({ x, y }: PublicKey): Address =>
  `0x${Buffer.from(keccak(bytesOf(x, y)).subarray(12)).toString("hex")}`;

export const isSameKey = (one: PublicKey, other: PublicKey): boolean =>
  one.x === other.x && one.y === other.y;

const FLAGS_AT = 32;
const COUNT_AT = 33;
const MIN_DATA_BYTES = 37;
const PRESENT_AND_VERIFIED = 0b101;

export interface SignedByPasskey {
  key: PublicKey;
  /** How often the authenticator has signed; 0 if it does not count. */
  count: number;
}

/**
 * The key that signed this hash, with the person verified by the device. Undefined: none did.
 * `places`: missing for a document that was checked when it was signed, maybe under another domain.
 */
export function passkeyThatSigned(
  { hash, signature }: { hash: Hex; signature: string },
  places?: PasskeyPlaces,
): SignedByPasskey | undefined {
  const read = readPasskeySignature(signature);
  if (!read) return undefined;
  const { x, y, r, s, authenticatorData, clientData } = read;
  const isRight =
    saysRight(clientData, hash, places) &&
    authenticatorData.length >= MIN_DATA_BYTES &&
    ((authenticatorData[FLAGS_AT] ?? 0) & PRESENT_AND_VERIFIED) === PRESENT_AND_VERIFIED &&
    (!places || sha256(places.domain).equals(authenticatorData.subarray(0, FLAGS_AT)));
  const signed = Buffer.concat([authenticatorData, sha256(clientData)]);
  if (!isRight || !isSignedBy({ x, y }, signed, bytesOf(r, s))) return undefined;
  return { key: { x, y }, count: Buffer.from(authenticatorData).readUInt32BE(COUNT_AT) };
}

/** The key, if the device that signed says that it belongs to this domain. That it signed is not checked. */
export function keyAtDomain(signature: string, domain: string): PublicKey | undefined {
  const read = readPasskeySignature(signature);
  const isThere =
    read && sha256(domain).equals(Buffer.from(read.authenticatorData.subarray(0, FLAGS_AT)));
  return isThere ? { x: read.x, y: read.y } : undefined;
}

/** What the browser said: an assertion of this challenge, by a page of ours that no other page frames. */
function saysRight(clientData: Uint8Array, hash: Hex, places: PasskeyPlaces | undefined): boolean {
  let said: unknown;
  try {
    said = JSON.parse(Buffer.from(clientData).toString("utf8"));
  } catch {
    return false;
  }
  return (
    isRecord(said) &&
    said["type"] === "webauthn.get" &&
    said["challenge"] === base64Url(hash) &&
    (said["crossOrigin"] ?? false) === false &&
    (!places || (typeof said["origin"] === "string" && places.origins.has(said["origin"])))
  );
}

function isSignedBy({ x, y }: PublicKey, signed: Uint8Array, signature: Uint8Array): boolean {
  try {
    const jwk = { kty: "EC", crv: "P-256", x: base64Url(x), y: base64Url(y) };
    const key = createPublicKey({ key: jwk, format: "jwk" });
    return verify("sha256", signed, { key, dsaEncoding: "ieee-p1363" }, signature);
  } catch {
    // Not a point of the curve.
    return false;
  }
}
