/** Sign-in with Ethereum (EIP-4361): nonce, message, signature, session. */
import { randomInt } from "node:crypto";
import { getAddress, isHex, type Hex, type Address } from "viem";
import {
  verifyAccountMessage,
  type SignatureVerdict,
} from "../../infra/chain/account-signature.ts";
import type { ChainClient } from "../../infra/chain/index.ts";
import type { Db, PrismaClient } from "../../infra/db/prisma.ts";
import { NOBODY, noteAudit } from "../audit/store.ts";
import type { Cells } from "../cells/index.ts";
import type { Screening } from "../screening/screening.ts";
import type { Proof } from "../audit/authority.ts";
import { ensureOwner, findOwners, insertNonce, ownerSecondedBy, takeNonce } from "./store.ts";
import {
  insertSession,
  revokeSessionByToken,
  createSessionToken,
  hashSessionToken,
} from "../auth/sessions.ts";
import { ApiError } from "../../errors.ts";
import type { OwnOrigins } from "../auth/index.ts";
import { parseAddress } from "../../core/foreign-text.ts";

const NONCE_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const NONCE_LENGTH = 32;

/** Letters and digits only, as EIP-4361 requires; 190 random bits. */
export async function issueNonce(prisma: PrismaClient): Promise<string> {
  const digit = () => NONCE_ALPHABET[randomInt(NONCE_ALPHABET.length)] ?? "";
  const nonce = Array.from({ length: NONCE_LENGTH }, digit).join("");
  await insertNonce(prisma, nonce, NONCE_LIFE_SECONDS);
  return nonce;
}

/** Who asks for a session. */
export interface Caller {
  userAgent: string;
  ip: string;
  requestId: string;
  /** The browser's previous session token; it is never reused, and its session is ended. */
  oldToken: string | undefined;
}

interface SignInRequest extends Caller {
  message: string;
  signature: string;
  /** The owner whose recovery wallet signs in. */
  secondOf: Address | undefined;
}

interface Deps {
  prisma: PrismaClient;
  own: OwnOrigins;
  chains: readonly ChainClient[];
  /** Whether a chain was verified to be the configured one. */
  isVerified: (chainId: number) => boolean;
  /** Undefined: addresses are not screened. */
  screening: Pick<Screening, "assertMaySignIn"> | undefined;
  /** Undefined where this is the only cell. */
  cells: Pick<Cells, "assertNewOwnerIsOurs"> | undefined;
}

/** The nonce is deleted before anything is verified, so a message works at most once in any case. */
export async function signIn(
  request: SignInRequest,
  { prisma, own, chains, isVerified, screening, cells }: Deps,
): Promise<{ address: SiweFields["address"]; token: string }> {
  const fields = parseSiwe(request.message);
  if (!fields) throw refused("the message is not a sign-in message (EIP-4361)");
  const nonce = await freshNonce(prisma, fields.nonce);
  const chainIds = chains.map(({ network }) => network.chainId);
  const check = checkSiwe(fields, { own, chainIds, now: nonce.now });
  if (!check.ok) throw refused(check.reason);

  const chain = chains.find(({ network }) => network.chainId === fields.chainId) as ChainClient;
  const verdict = await verify(chain, fields, request);
  // A contract's signature counts only on its chain: an unverified chain proves nothing.
  const isVouched = verdict !== "contract" || isVerified(fields.chainId);
  if (verdict === "invalid")
    await noteRefusal(
      prisma,
      await findOwners(prisma, fields.address, [0, fields.chainId]),
      request,
    );
  assertSigned(isVouched ? verdict : "unavailable");
  const contractOn = verdict === "contract" ? fields.chainId : 0;
  // A recovery wallet signs in to an account that exists.
  if (request.secondOf === undefined) {
    const isKnown = async () => (await findOwners(prisma, fields.address, [contractOn])).length > 0;
    await screening?.assertMaySignIn(fields.address, isKnown);
    if (cells && !(await isKnown())) await cells.assertNewOwnerIsOurs(fields.address);
  }

  let { address } = fields;
  const token = await prisma.$transaction(async (tx) => {
    const wallet = { address: fields.address, chainId: contractOn };
    const second = request.secondOf && (await ownerSecondedBy(tx, request.secondOf, wallet));
    if (request.secondOf !== undefined && !second)
      throw refused(`this account is not the recovery wallet of ${getAddress(request.secondOf)}`);
    const ownerId = second?.id ?? (await ensureOwner(tx, fields.address, contractOn));
    address = second?.address ?? fields.address;
    return openSession(tx, request, {
      ownerId,
      actor: fields.address,
      action: "session.created",
      ...(second && { second: wallet }),
      // The message can no longer be used, and permanently shows who requested this session.
      proof: {
        kind: "message",
        message: request.message,
        signer: fields.address,
        chainId: contractOn,
        signature: request.signature.toLowerCase(),
      },
    });
  });
  return { address, token };
}

interface Opened {
  ownerId: string;
  actor: Address;
  action: "session.created" | "owner.created";
  /** The recovery wallet that signed in. */
  second?: { address: Address; chainId: number };
  /** The passkey that signed in. */
  passkeyId?: string;
  proof?: Proof;
}

/** Returns the token of a new session. The previous one of the same browser ends; the audit has both. */
export async function openSession(tx: Db, by: Caller, opened: Opened): Promise<string> {
  const { ownerId, actor, action, second, passkeyId, proof } = opened;
  if (by.oldToken !== undefined) await endOld(tx, by, by.oldToken);
  const token = createSessionToken();
  const from = deviceOf(by);
  const sessionId = await insertSession(tx, {
    ownerId,
    tokenHash: hashSessionToken(token),
    ...from,
    ...(second && { second }),
    ...(passkeyId !== undefined && { passkeyId }),
  });
  await noteAudit(tx, {
    ownerId,
    agentId: null,
    actor,
    action,
    before: null,
    after: { sessionId, ...from },
    requestId: by.requestId,
    ...(proof && { proof }),
  });
  return token;
}

const deviceOf = ({ userAgent, ip }: Caller) => ({ userAgent: userAgent.slice(0, 300), ip });

async function endOld(tx: Db, { requestId }: Caller, oldToken: string): Promise<void> {
  const old = await revokeSessionByToken(tx, hashSessionToken(oldToken));
  if (!old) return;
  const after = { sessionId: old.id, why: "another sign-in in the same browser" };
  const { id: ownerId, address: actor } = old.owner;
  const action = "session.ended";
  await noteAudit(tx, { ownerId, agentId: null, actor, action, before: null, after, requestId });
}

/** Deletes the nonce, which works once. */
export async function freshNonce(prisma: PrismaClient, nonce: string): Promise<{ now: Date }> {
  const taken = await takeNonce(prisma, nonce);
  if (!taken) throw refused("its nonce is unknown, too old or used before; get a new one");
  if (!taken.fresh) throw refused("its nonce is older than 10 minutes; get a new one");
  return taken;
}

/** Records a failed attempt to sign in as an existing owner. */
export async function noteRefusal(
  prisma: PrismaClient,
  ownerIds: readonly string[],
  by: Caller,
): Promise<void> {
  for (const ownerId of ownerIds)
    await noteAudit(prisma, {
      ownerId,
      agentId: null,
      actor: NOBODY,
      action: "session.refused",
      before: null,
      after: deviceOf(by),
      requestId: by.requestId,
    });
}

async function verify(
  chain: ChainClient,
  { address }: SiweFields,
  { message, signature }: SignInRequest,
): Promise<SignatureVerdict> {
  if (!isHex(signature) || signature.length % 2 !== 0) return "invalid";
  return verifyAccountMessage(chain, {
    address,
    message,
    signature: signature.toLowerCase() as Hex,
  });
}

function assertSigned(verdict: SignatureVerdict): void {
  if (verdict === "invalid") throw refused("this account did not sign this message");
  if (verdict === "unavailable")
    throw new ApiError("chain_unavailable", {
      detail:
        "This account's key did not sign the message, and the chain cannot be read to check for a smart account. Try again later.",
    });
}

export const refused = (reason: string): ApiError =>
  new ApiError("invalid_signature", {
    detail: `Sign-in refused: ${reason}.`,
    headers: { "www-authenticate": 'SIWE realm="purser"' },
  });

/**
 * Sign-in messages (EIP-4361). The whole message is matched from its first to its last character: a second set of
 * fields hidden in the statement, or any text before or after, makes it invalid.
 */

/** Server nonces: 32 of 62 characters are 190 random bits; the minimum is 96. */
const NONCE_LIFE_SECONDS = 600;
/** How far a user's clock may be ahead of ours. */
const CLOCK_SKEW_MS = 5 * 60_000;

const TIME = String.raw`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})`;
const MESSAGE = new RegExp(
  [
    String.raw`^(?:(?<scheme>[a-z][a-z0-9+.-]*)://)?(?<domain>[^\s/?#@]+) wants you to sign in with your Ethereum account:`,
    // Without a statement the grammar has two empty lines; some libraries write only one.
    String.raw`(?<address>0x[0-9a-fA-F]{40})(?:\n\n[^\n]+\n|\n\n?)`,
    String.raw`URI: (?<uri>\S+)`,
    String.raw`Version: (?<version>\S+)`,
    String.raw`Chain ID: (?<chainId>[1-9][0-9]{0,15})`,
    String.raw`Nonce: (?<nonce>[a-zA-Z0-9]{8,128})`,
    String.raw`Issued At: (?<issuedAt>${TIME})`,
  ].join(String.raw`\n`) +
    String.raw`(?:\nExpiration Time: (?<expirationTime>${TIME}))?` +
    String.raw`(?:\nNot Before: (?<notBefore>${TIME}))?` +
    String.raw`(?:\nRequest ID: (?<requestId>[^\n]*))?` +
    String.raw`(?:\nResources:(?<resources>(?:\n- [^\n]+)*))?$`,
);

export interface SiweFields {
  scheme: string | undefined;
  domain: string;
  address: Address;
  uri: string;
  version: string;
  chainId: number;
  nonce: string;
  issuedAt: Date;
  expirationTime: Date | undefined;
  notBefore: Date | undefined;
}

type SiweCheck = { ok: true } | { ok: false; reason: string };

export function parseSiwe(message: string): SiweFields | undefined {
  const groups = MESSAGE.exec(message)?.groups;
  if (!groups) return undefined;
  const address = parseAddress(groups["address"]);
  if (!address.ok) return undefined;
  const time = (name: string): Date | undefined => {
    const text = groups[name];
    return text === undefined ? undefined : new Date(text);
  };
  const times = { expirationTime: time("expirationTime"), notBefore: time("notBefore") };
  const issuedAt = time("issuedAt");
  const isTime = (at: Date | undefined) => at === undefined || !Number.isNaN(at.getTime());
  if (!issuedAt || ![issuedAt, times.expirationTime, times.notBefore].every(isTime))
    return undefined;
  return {
    scheme: groups["scheme"],
    domain: groups["domain"] ?? "",
    address: address.address,
    uri: groups["uri"] ?? "",
    version: groups["version"] ?? "",
    chainId: Number(groups["chainId"]),
    nonce: groups["nonce"] ?? "",
    issuedAt,
    ...times,
  };
}

/** Checks that the message is for this service, and currently valid. The signature is verified elsewhere. */
export function checkSiwe(
  fields: SiweFields,
  expected: { own: OwnOrigins; chainIds: readonly number[]; now: Date },
): SiweCheck {
  const { own, chainIds, now } = expected;
  const nowMs = now.getTime();
  const no = (reason: string): SiweCheck => ({ ok: false, reason });
  if (fields.version !== "1") return no(`its version is ${fields.version}, not 1`);
  if (!own.hosts.has(fields.domain))
    return no(`its domain is ${fields.domain}, not that of this service`);
  if (fields.scheme !== undefined && fields.scheme !== (own.isHttps ? "https" : "http"))
    return no(`its scheme is ${fields.scheme}, not that of this service`);
  if (!URL.canParse(fields.uri) || !own.origins.has(new URL(fields.uri).origin))
    return no("its URI is not that of this service");
  if (!chainIds.includes(fields.chainId))
    return no(`its chain ID is ${fields.chainId}; use one of ${chainIds.join(", ")}`);
  if (fields.issuedAt.getTime() > nowMs + CLOCK_SKEW_MS)
    return no("it was issued in the future; check your clock");
  if (fields.expirationTime && fields.expirationTime.getTime() <= nowMs)
    return no("it has expired; check your clock");
  if (fields.notBefore && fields.notBefore.getTime() > nowMs) return no("it is not valid yet");
  return { ok: true };
}
