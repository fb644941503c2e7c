/**
 * The Payment authentication scheme (MPP) on the wire, method `evm`, intent `charge`: what a challenge, a credential
 * and a receipt look like, for who asks and for who pays. Headers hold base64url JSON without padding.
 */
import { keccak256, stringToBytes, type Hex } from "viem";
import { readForeignJson } from "./foreign-json.ts";

/** The parameters of a challenge as its seller wrote them; a credential repeats them unchanged. */
export interface PaymentChallenge {
  id: string;
  realm: string;
  method: string;
  intent: string;
  /** base64url of the canonical JSON of what is asked. */
  request: string;
  /** ISO 8601. */
  expires?: string;
  digest?: string;
  /** Where the credential goes, unless to `Authorization`. */
  header?: string;
  opaque?: string;
}

export const CHARGE = { method: "evm", intent: "charge" } as const;

/** The nonce of the authorization that answers a challenge, so that it answers no other: as the protocol's draft has it. */
export const challengeHash = ({ id, realm }: Pick<PaymentChallenge, "id" | "realm">): Hex =>
  keccak256(stringToBytes(`${id}${realm}`));

/**
 * The same with a border between the two, as pympp 0.15 and 0.16 hash it. A seller that wrote the challenge itself may
 * take either; a payer cannot know which of the two a seller takes, and keeps to the draft's.
 */
export const borderedHash = ({ id, realm }: Pick<PaymentChallenge, "id" | "realm">): Hex =>
  keccak256(stringToBytes(JSON.stringify([id, realm])));

export const toBase64Url = (value: unknown): string =>
  Buffer.from(JSON.stringify(value)).toString("base64url");

/** Undefined: not base64url of JSON that can be looked through. */
export function fromBase64Url(text: string): unknown {
  if (!/^[\w-]+={0,2}$/.test(text)) return undefined;
  const read = readForeignJson(() => JSON.parse(Buffer.from(text, "base64url").toString("utf8")));
  return read.ok ? read.value : undefined;
}

export const payerOf = (chainId: number, address: string): string =>
  `did:pkh:eip155:${chainId}:${address}`;
