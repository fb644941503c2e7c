/**
 * sign-in-with-x (EIP-4361): the only message that an agent's wallet signs without moving money: "I am the wallet that
 * paid you". Every line of it is ours or bounded: the origin is the requested one, the address is the agent's, the
 * chain is a configured one, and it expires after some minutes. It is hashed as EIP-191 text, which no token accepts as
 * an authorization.
 */
import {
  assertSIWxChallengeBoundToOrigin,
  createSIWxMessage,
  type SIWxExtensionInfo,
  type SIWxPayload,
} from "@x402/extensions/sign-in-with-x";
import { getAddress, hashMessage, type Address, type Hex } from "viem";
import { isRecord } from "../../core/foreign-text.ts";
import type { NetworkFacts } from "../../core/networks.ts";

export interface SignInRequest {
  agentId: string;
  /** The URL of the fetch: the message is for its origin. */
  url: URL;
  /** The account that is paid there. */
  payee: Address;
  /** The extension in the site's response. */
  challenge: unknown;
  networks: readonly NetworkFacts[];
}

type SignInFacts = Omit<SIWxPayload, "address" | "signature" | "uri"> & { uri: string };

const NONCE = /^[A-Za-z0-9]{8,128}$/;
/** One line of printable ASCII. */
const STATEMENT = /^[\x20-\x7e]{1,200}$/;
const CLOCKS_MS = 5 * 60_000;
const VALID_MS = 5 * 60_000;

/** The message to sign; undefined if the site requests something else, which is not signed. */
export function readChallenge(
  { url, challenge, networks }: Pick<SignInRequest, "url" | "challenge" | "networks">,
  now: Date,
): SignInFacts | undefined {
  if (!isRecord(challenge) || !isRecord(challenge["info"])) return undefined;
  const { info, supportedChains } = challenge;
  const { nonce, issuedAt, expirationTime, notBefore, statement, version } = info;
  const network = networks.find(({ id }) => isAmong(supportedChains, id));
  if (!network || version !== "1" || typeof nonce !== "string" || !NONCE.test(nonce))
    return undefined;
  if (statement !== undefined && (typeof statement !== "string" || !STATEMENT.test(statement)))
    return undefined;
  try {
    assertSIWxChallengeBoundToOrigin(info as unknown as SIWxExtensionInfo, url);
  } catch {
    return undefined;
  }
  const issued = timeOf(issuedAt);
  const ends = expirationTime === undefined ? undefined : timeOf(expirationTime);
  const isTimely =
    issued !== undefined &&
    Math.abs(issued - now.getTime()) <= CLOCKS_MS &&
    (notBefore === undefined || (timeOf(notBefore) ?? Infinity) <= now.getTime()) &&
    (expirationTime === undefined || (ends !== undefined && ends > now.getTime()));
  if (!isTimely) return undefined;
  const latest = now.getTime() + VALID_MS;
  return {
    domain: url.host,
    uri: `${url.origin}${url.pathname}${url.search}`,
    version,
    chainId: network.id,
    type: "eip191",
    nonce,
    issuedAt: new Date(issued).toISOString(),
    expirationTime: new Date(Math.min(ends ?? latest, latest)).toISOString(),
    ...(statement === undefined ? {} : { statement }),
  };
}

const isAmong = (chains: unknown, id: string): boolean =>
  Array.isArray(chains) &&
  chains
    .slice(0, 64)
    .some((chain) => isRecord(chain) && chain["chainId"] === id && chain["type"] === "eip191");

function timeOf(text: unknown): number | undefined {
  const time =
    typeof text === "string" && /^\d{4}-\d\d-\d\dT[\d:.]{8,15}Z$/.test(text)
      ? Date.parse(text)
      : Number.NaN;
  return Number.isNaN(time) ? undefined : time;
}

/** The digest of the message, and the message with its signature in the site's format. */
export function signInOf(
  facts: SignInFacts,
  address: Address,
): { hash: Hex; withSignature: (signature: Hex) => SIWxPayload } {
  const wallet = getAddress(address);
  const message = createSIWxMessage({ ...facts, chainId: facts.chainId, type: "eip191" }, wallet);
  return {
    hash: hashMessage(message),
    withSignature: (signature) => ({ ...facts, address: wallet, signature }),
  };
}
