/**
 * The wire format of the Payment authentication scheme (MPP), method `evm`, intent `charge`: challenge,
 * credential and receipt, for sellers and payers. Headers contain base64url JSON without padding.
 */
import type { SettleResponse } from "@x402/core/types";
import { keccak256, stringToBytes, type Hex } from "viem";
import { readForeignJson } from "./foreign-json.ts";

/** The parameters of a challenge as the seller wrote them; a credential repeats them unchanged. */
export interface PaymentChallenge {
  id: string;
  realm: string;
  method: string;
  intent: string;
  /** base64url of the canonical JSON of the requested charge. */
  request: string;
  /** ISO 8601. */
  expires?: string;
  digest?: string;
  /** The header for the credential; `Authorization` by default. */
  header?: string;
  opaque?: string;
}

export const CHARGE = { method: "evm", intent: "charge" } as const;

/**
 * The nonce of the authorization for a challenge, as the protocol's draft defines it. It binds the
 * authorization to this challenge.
 */
export const challengeHash = ({ id, realm }: Pick<PaymentChallenge, "id" | "realm">): Hex =>
  keccak256(stringToBytes(`${id}${realm}`));

/**
 * The same hash with a separator between the two values, as pympp 0.15 and 0.16 compute it. A seller may
 * accept both for a challenge that it wrote itself. A payer cannot know which one a seller accepts, and uses
 * the draft's.
 */
export const borderedHash = ({ id, realm }: Pick<PaymentChallenge, "id" | "realm">): Hex =>
  keccak256(stringToBytes(JSON.stringify([id, realm])));

export const toBase64Url = (value: unknown): string =>
  Buffer.from(JSON.stringify(value)).toString("base64url");

/** Undefined where the text is not base64url of JSON within the depth limit. */
export function fromBase64Url(text: string): unknown {
  if (!/^[\w-]+={0,2}$/.test(text)) return undefined;
  const read = readForeignJson(() => JSON.parse(Buffer.from(text, "base64url").toString("utf8")));
  return read.ok ? read.value : undefined;
}

export const payerOf = (chainId: number, address: string): string =>
  `did:pkh:eip155:${chainId}:${address}`;

/** On success only: a failure is reported in the response body. */
export const receiptHeader = (settled: SettleResponse): Record<string, string> => {
  if (!settled.success) return {};
  const { transaction: reference } = settled;
  const receipt = { method: CHARGE.method, reference, status: "success" };
  return { "payment-receipt": toBase64Url({ ...receipt, timestamp: new Date().toISOString() }) };
};
