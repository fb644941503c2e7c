/** What browsers are asked for (WebAuthn), and what they answer. The library is loaded when it is first needed. */
import { createPublicKey } from "node:crypto";
import { hashMessage } from "viem";
import type { PasskeyPlaces, PublicKey } from "../../core/passkeys.ts";
import type { NewCredential } from "../../schemas/passkeys.ts";
import { refused } from "../owners/sign-in.ts";

/** ECDSA on P-256 with SHA-256, which every authenticator has, and which custody checks itself. */
const ES256 = -7;
const TIMEOUT_MS = 5 * 60_000;

export type Purpose = "create" | "sign-in";

/**
 * The text whose hash is the challenge. It is hashed as a message (EIP-191), so it can never be the digest of an order
 * (EIP-712).
 */
export const challengeText = (purpose: Purpose, host: string, nonce: string): string =>
  purpose === "create"
    ? `Create a passkey for Purser at ${host}.\n\nNonce: ${nonce}`
    : `Sign in to Purser at ${host} with a passkey.\n\nNonce: ${nonce}`;

const challengeBytes = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(Buffer.from(hashMessage(text).slice(2), "hex"));

interface Known {
  id: string;
  transports: string[];
}

/** `known`: the owner's passkeys, so that a device does not make a second one. */
export async function creationOptions(
  { domain }: PasskeyPlaces,
  text: string,
  known: readonly Known[],
): Promise<Record<string, unknown>> {
  const { generateRegistrationOptions } = await import("@simplewebauthn/server");
  const options = await generateRegistrationOptions({
    rpName: "Purser",
    rpID: domain,
    // The page puts the name there that the user chose.
    userName: "Purser",
    challenge: challengeBytes(text),
    timeout: TIMEOUT_MS,
    attestationType: "none",
    excludeCredentials: known.map(({ id, transports }) => ({ id, transports })),
    authenticatorSelection: { residentKey: "required", userVerification: "required" },
    supportedAlgorithmIDs: [ES256],
  });
  return { ...options };
}

/** Without a list of passkeys: the user's device shows those that it has for this domain. */
export async function signInOptions(
  { domain }: PasskeyPlaces,
  text: string,
): Promise<Record<string, unknown>> {
  const { generateAuthenticationOptions } = await import("@simplewebauthn/server");
  const options = await generateAuthenticationOptions({
    rpID: domain,
    challenge: challengeBytes(text),
    timeout: TIMEOUT_MS,
    userVerification: "required",
  });
  return { ...options };
}

export interface NewPasskey {
  id: string;
  key: PublicKey;
  count: number;
  transports: string[];
}

/** Throws `invalid_signature` if the browser's answer is not a new passkey for this challenge at a page of ours. */
export async function readNewPasskey(
  places: PasskeyPlaces,
  text: string,
  credential: NewCredential,
): Promise<NewPasskey> {
  const { verifyRegistrationResponse } = await import("@simplewebauthn/server");
  const result = await verifyRegistrationResponse({
    response: { ...credential, clientExtensionResults: {} } as Parameters<
      typeof verifyRegistrationResponse
    >[0]["response"],
    expectedChallenge: Buffer.from(challengeBytes(text)).toString("base64url"),
    expectedOrigin: [...places.origins],
    expectedRPID: places.domain,
    requireUserVerification: true,
    supportedAlgorithmIDs: [ES256],
  }).catch((error: unknown) => {
    throw refused(`the new passkey was not accepted: ${reasonIn(error)}`);
  });
  if (!result.verified) throw refused("the new passkey was not accepted");
  const { credential: made } = result.registrationInfo;
  return {
    id: made.id,
    key: await publicKeyIn(made.publicKey),
    count: made.counter,
    transports: [...new Set(credential.response.transports ?? [])],
  };
}

/** The library's sentence, without its end. */
const reasonIn = (error: unknown): string =>
  error instanceof Error ? error.message.replace(/\.$/, "").slice(0, 200) : "unreadable";

// Members of a key in COSE.
const CURVE = -1;
const X = -2;
const Y = -3;
const P256 = 1;

async function publicKeyIn(cose: Uint8Array<ArrayBuffer>): Promise<PublicKey> {
  const { decodeCredentialPublicKey } = await import("@simplewebauthn/server/helpers");
  const members = decodeCredentialPublicKey(cose) as unknown as Map<number, unknown>;
  const [x, y] = [members.get(X), members.get(Y)].map((member) =>
    member instanceof Uint8Array ? Buffer.from(member) : Buffer.alloc(0),
  ) as [Buffer, Buffer];
  if (members.get(CURVE) !== P256 || !isPoint(x, y))
    throw refused("the new passkey was not accepted: its key is not of the kind P-256");
  return { x: `0x${x.toString("hex")}`, y: `0x${y.toString("hex")}` };
}

function isPoint(x: Buffer, y: Buffer): boolean {
  try {
    const [one, other] = [x, y].map((number) => number.toString("base64url"));
    createPublicKey({ key: { kty: "EC", crv: "P-256", x: one, y: other }, format: "jwk" });
    return true;
  } catch {
    return false;
  }
}
