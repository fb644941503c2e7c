/**
 * What a browser answers when a passkey has signed (WebAuthn's JSON), as the one text that is sent and kept as its
 * signature. The web app and the server both make it.
 */
import { type PublicKey, writePasskeySignature } from "./passkeys.ts";

/** The part of `AuthenticationResponseJSON` that counts; each in base64url. */
export interface Assertion {
  clientDataJSON: string;
  authenticatorData: string;
  /** Two numbers, in DER. */
  signature: string;
}

/** Undefined if a part of it is malformed. Whether it is valid is not checked. */
export function signatureOfAssertion(key: PublicKey, assertion: Assertion): string | undefined {
  const [clientData, authenticatorData, der] = [
    assertion.clientDataJSON,
    assertion.authenticatorData,
    assertion.signature,
  ].map(bytesOf);
  const numbers = der && numbersIn(der);
  if (!clientData || !authenticatorData || !numbers) return undefined;
  return writePasskeySignature({ ...key, ...numbers, authenticatorData, clientData });
}

function bytesOf(base64Url: string): Uint8Array | undefined {
  if (!/^[A-Za-z0-9_-]*$/.test(base64Url) || base64Url.length % 4 === 1) return undefined;
  const text = atob(base64Url.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

const SEQUENCE = 0x30;
const INTEGER = 0x02;
const NUMBER_BYTES = 32;

/** A sequence of two whole numbers of at most 32 bytes each. */
function numbersIn(der: Uint8Array): { r: string; s: string } | undefined {
  if (der[0] !== SEQUENCE || der[1] !== der.length - 2) return undefined;
  const first = numberAt(der, 2);
  const second = first && numberAt(der, first.end);
  if (second?.end !== der.length) return undefined;
  return { r: first?.word ?? "", s: second.word };
}

function numberAt(der: Uint8Array, at: number): { word: string; end: number } | undefined {
  const length = der[at + 1] ?? 0;
  const end = at + 2 + length;
  if (der[at] !== INTEGER || length === 0 || end > der.length) return undefined;
  const digits = Array.from(der.subarray(at + 2, end), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
  // A leading zero only says that the number is positive.
  const word = digits.replace(/^(?:00)+/, "").padStart(NUMBER_BYTES * 2, "0");
  return word.length === NUMBER_BYTES * 2 ? { word: `0x${word}`, end } : undefined;
}
