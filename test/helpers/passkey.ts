// An authenticator in software: a P-256 key that answers WebAuthn's requests as a browser with a passkey does. Parts of
// what the browser says can be replaced, to say something wrong.
import { createHash, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { hashTypedData, type Address, type Hex } from "viem";
import type { PrivateKeyAccount } from "viem/accounts";
import {
  addressOfPasskey,
  writePasskeySignature,
  type PublicKey,
} from "../../server/core/passkeys.ts";
import type { TestApp } from "./app.ts";
import type { SignedInOwner } from "./owner.ts";

/** What a browser and a device say; a test replaces some of it. */
export interface Said {
  origin?: string;
  domain?: string;
  type?: string;
  crossOrigin?: boolean;
  isPresent?: boolean;
  isVerified?: boolean;
  /** How often this passkey has signed. */
  count?: number;
  /** So many bytes of what the device says. */
  bytes?: number;
  /** Changes what the browser says, before it is signed. */
  edit?: (clientData: string) => string;
  /** What a browser may write beside it. */
  more?: string;
}

export interface RegistrationJson {
  id: string;
  rawId: string;
  type: "public-key";
  response: { clientDataJSON: string; attestationObject: string; transports: string[] };
  clientExtensionResults: Record<string, unknown>;
}

export interface AssertionJson {
  id: string;
  rawId: string;
  type: "public-key";
  response: {
    clientDataJSON: string;
    authenticatorData: string;
    signature: string;
    userHandle?: string;
  };
  clientExtensionResults: Record<string, unknown>;
}

export interface TestPasskey {
  key: PublicKey;
  /** Of the owner whose first passkey this is. Lower case. */
  address: Address;
  credentialId: string;
  /** `navigator.credentials.create` for a challenge in base64url. */
  create(challenge: string, said?: Said): RegistrationJson;
  /** `navigator.credentials.get` for a challenge in base64url. */
  get(challenge: string, said?: Said): AssertionJson;
  /** The signature of a digest, in the text that is sent where a wallet's signature is sent. */
  signHash(hash: Hex, said?: Said): Hex;
  /** As a wallet's account signs, so that helpers for wallets take a passkey too. */
  signTypedData: PrivateKeyAccount["signTypedData"];
}

const FLAG = { present: 0b1, verified: 0b100, hasKey: 0b100_0000 };

/** `publicUrl`: the page's address; its host is the domain of the passkey. */
export function testPasskey(publicUrl: string, defaults: Said = {}): TestPasskey {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const jwk = publicKey.export({ format: "jwk" });
  const x = Buffer.from(jwk.x ?? "", "base64url");
  const y = Buffer.from(jwk.y ?? "", "base64url");
  const key: PublicKey = { x: hexOf(x), y: hexOf(y) };
  const id = randomBytes(32);
  const credentialId = id.toString("base64url");
  const { origin, hostname } = new URL(publicUrl);

  const clientData = (challenge: string, type: string, said: Said) =>
    Buffer.from(
      JSON.stringify({
        type: said.type ?? type,
        challenge,
        origin: said.origin ?? origin,
        crossOrigin: said.crossOrigin ?? false,
        more: said.more,
      }),
    );
  const authenticatorData = (said: Said, flags = 0) => {
    const { isPresent = true, isVerified = true, count = 0 } = said;
    const bits = flags | (isPresent ? FLAG.present : 0) | (isVerified ? FLAG.verified : 0);
    const counter = Buffer.alloc(4);
    counter.writeUInt32BE(count);
    return Buffer.concat([sha256(said.domain ?? hostname), Buffer.from([bits]), counter]);
  };
  const assert = (challenge: string, said: Said) => {
    const data = authenticatorData(said).subarray(0, said.bytes);
    const { edit = (text) => text } = said;
    const client = Buffer.from(edit(clientData(challenge, "webauthn.get", said).toString()));
    const signature = sign("sha256", Buffer.concat([data, sha256(client)]), privateKey);
    return { data, client, signature };
  };
  const signHash = (hash: Hex, said: Said = {}): Hex => {
    const challenge = Buffer.from(hash.slice(2), "hex").toString("base64url");
    const { data, client, signature } = assert(challenge, { ...defaults, ...said });
    const { r, s } = numbersOf(signature);
    return writePasskeySignature({
      ...key,
      r,
      s,
      authenticatorData: data,
      clientData: client,
    }) as Hex;
  };
  const envelope = { id: credentialId, rawId: credentialId, type: "public-key" as const };

  return {
    key,
    address: addressOfPasskey(key),
    credentialId,
    create(challenge, said = {}) {
      const all = { ...defaults, ...said };
      const data = Buffer.concat([
        authenticatorData(all, FLAG.hasKey),
        Buffer.alloc(16), // No model of authenticator is named.
        Buffer.from([0, id.length]),
        id,
        coseKey(x, y),
      ]);
      return {
        ...envelope,
        response: {
          clientDataJSON: clientData(challenge, "webauthn.create", all).toString("base64url"),
          attestationObject: attestation(data).toString("base64url"),
          transports: ["internal"],
        },
        clientExtensionResults: {},
      };
    },
    get(challenge, said = {}) {
      const { data, client, signature } = assert(challenge, { ...defaults, ...said });
      return {
        ...envelope,
        response: {
          clientDataJSON: client.toString("base64url"),
          authenticatorData: data.toString("base64url"),
          signature: signature.toString("base64url"),
        },
        clientExtensionResults: {},
      };
    },
    signHash,
    signTypedData: async (typedData) =>
      signHash(hashTypedData(typedData as Parameters<typeof hashTypedData>[0])),
  };
}

const hexOf = (bytes: Uint8Array): Hex => `0x${Buffer.from(bytes).toString("hex")}`;
const sha256 = (bytes: Uint8Array | string): Buffer => createHash("sha256").update(bytes).digest();

/** A key for ECDSA on P-256, as CBOR: {1: 2, 3: -7, -1: 1, -2: x, -3: y}. */
const coseKey = (x: Uint8Array, y: Uint8Array): Buffer =>
  Buffer.concat([Buffer.from("a5010203262001215820", "hex"), x, Buffer.from("225820", "hex"), y]);

/** Nobody vouches for the authenticator, as CBOR: {fmt: "none", attStmt: {}, authData}. */
const attestation = (data: Uint8Array): Buffer =>
  Buffer.concat([
    Buffer.from("a363666d74646e6f6e656761747453746d74a068617574684461746158", "hex"),
    Buffer.from([data.length]),
    data,
  ]);

/** The two numbers of a DER signature, 32 bytes each. */
function numbersOf(der: Uint8Array): { r: string; s: string } {
  const bytes = Buffer.from(der);
  const lengthR = bytes[3] ?? 0;
  const atS = 4 + lengthR;
  const number = (start: number, length: number) =>
    `0x${BigInt(hexOf(bytes.subarray(start, start + length)))
      .toString(16)
      .padStart(64, "0")}`;
  return { r: number(4, lengthR), s: number(atS + 2, bytes[atS + 1] ?? 0) };
}

/** A request of the web app's own pages, without a session. */
const send = (
  { app, config }: Pick<TestApp, "app" | "config">,
  url: string,
  body: object,
  headers: Record<string, string> = {},
) =>
  app.inject({
    method: "POST",
    url,
    headers: { origin: config.publicUrl, "content-type": "application/json", ...headers },
    payload: JSON.stringify(body),
  });

/** The nonce and the challenge of options. */
export async function passkeyOptions(
  { app }: Pick<TestApp, "app">,
  url: string,
  headers: Record<string, string> = {},
): Promise<{ nonce: string; challenge: string }> {
  const answer = await app.inject({ method: "GET", url, headers });
  if (answer.statusCode !== 200) throw new Error(`no options: ${answer.body}`);
  const { nonce, options } = answer.json<{ nonce: string; options: { challenge: string } }>();
  return { nonce, challenge: options.challenge };
}

const PASSKEY = "/api/auth/passkey";

/** The request of a sign-up, with its nonce. */
export async function preparedSignUp(
  service: Pick<TestApp, "app" | "config">,
  passkey: TestPasskey,
) {
  const { nonce, challenge } = await passkeyOptions(service, `${PASSKEY}/register-options`);
  const credential = passkey.create(challenge);
  return () => send(service, `${PASSKEY}/register`, { nonce, name: "Laptop", credential });
}

export const trySignUp = async (
  service: Pick<TestApp, "app" | "config">,
  passkey: TestPasskey,
): Promise<Awaited<ReturnType<typeof send>>> => (await preparedSignUp(service, passkey))();

export async function tryPasskeySignIn(
  service: Pick<TestApp, "app" | "config">,
  passkey: TestPasskey,
  said: Said = {},
  { headers, edit = (credential) => credential }: TrySignIn = {},
) {
  const { nonce, challenge } = await passkeyOptions(service, `${PASSKEY}/sign-in-options`);
  const credential = edit(passkey.get(challenge, said));
  return send(service, `${PASSKEY}/sign-in`, { nonce, credential }, headers);
}

interface TrySignIn {
  headers?: Record<string, string>;
  edit?: (credential: AssertionJson) => AssertionJson;
}

/** An owner without a wallet; `account` signs with the passkey. */
export async function signUpWithPasskey(
  service: Pick<TestApp, "app" | "config">,
  passkey: TestPasskey = testPasskey(service.config.publicUrl),
): Promise<SignedInOwner & { passkey: TestPasskey }> {
  return signedIn(service, passkey, await trySignUp(service, passkey));
}

export async function signInWithPasskey(
  service: Pick<TestApp, "app" | "config">,
  passkey: TestPasskey,
): Promise<SignedInOwner & { passkey: TestPasskey }> {
  return signedIn(service, passkey, await tryPasskeySignIn(service, passkey));
}

function signedIn(
  { config }: Pick<TestApp, "config">,
  passkey: TestPasskey,
  answer: Awaited<ReturnType<typeof send>>,
) {
  const [setCookie] = [answer.headers["set-cookie"]].flat();
  if (answer.statusCode !== 200 || setCookie === undefined)
    throw new Error(`no session: ${answer.statusCode} ${answer.body}`);
  const cookie = setCookie.split(";", 1)[0] ?? "";
  return {
    passkey,
    account: passkey as unknown as PrivateKeyAccount,
    cookie,
    headers: { cookie, origin: config.publicUrl, "content-type": "application/json" },
  };
}

/** The request with another passkey of this owner, which is in no signed list yet. */
export async function preparedOffer(
  service: Pick<TestApp, "app" | "config">,
  owner: Pick<SignedInOwner, "headers">,
  passkey: TestPasskey,
) {
  const { nonce, challenge } = await passkeyOptions(
    service,
    "/api/passkeys/options",
    owner.headers,
  );
  const credential = passkey.create(challenge);
  return () => send(service, "/api/passkeys", { nonce, name: "Phone", credential }, owner.headers);
}

export const tryOffer = async (
  ...args: Parameters<typeof preparedOffer>
): Promise<Awaited<ReturnType<typeof send>>> => (await preparedOffer(...args))();
