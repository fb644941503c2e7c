import { randomInt } from "node:crypto";
import { isHex, type Hex } from "viem";
import {
  verifyAccountMessage,
  type SignatureVerdict,
} from "../../infra/chain/account-signature.ts";
import type { ChainClient } from "../../infra/chain/index.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import { ensureOwner, insertNonce, takeNonce } from "./store.ts";
import {
  insertSession,
  revokeSessionByToken,
  createSessionToken,
  hashSessionToken,
} from "../auth/sessions.ts";
import { ApiError } from "../../errors.ts";
import type { OwnOrigins } from "../auth/owner.ts";
import { NONCE_LIFE_SECONDS, checkSiwe, parseSiwe, type SiweFields } from "./siwe.ts";

const NONCE_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const NONCE_LENGTH = 32;

/** Letters and digits only, as EIP-4361 demands; 190 random bits. */
export async function issueNonce(prisma: PrismaClient): Promise<string> {
  const digit = () => NONCE_ALPHABET[randomInt(NONCE_ALPHABET.length)] ?? "";
  const nonce = Array.from({ length: NONCE_LENGTH }, digit).join("");
  await insertNonce(prisma, nonce, NONCE_LIFE_SECONDS);
  return nonce;
}

export interface SignInRequest {
  message: string;
  signature: string;
  userAgent: string;
  ip: string;
  /** The token the browser came with; never adopted, ended if it was alive. */
  oldToken: string | undefined;
}

export interface Deps {
  prisma: PrismaClient;
  own: OwnOrigins;
  chains: readonly ChainClient[];
}

/** The nonce is gone before anything is verified: a message works at most once, come what may. */
export async function signIn(
  request: SignInRequest,
  { prisma, own, chains }: Deps,
): Promise<{ address: SiweFields["address"]; token: string }> {
  const fields = parseSiwe(request.message);
  if (!fields) throw refused("the message is not a sign-in message (EIP-4361)");
  const nonce = await takeNonce(prisma, fields.nonce);
  if (!nonce) throw refused("its nonce is not ours, too old, or was used before; get a new one");
  if (!nonce.fresh) throw refused("its nonce is older than 10 minutes; get a new one");
  const chainIds = chains.map(({ network }) => network.chainId);
  const check = checkSiwe(fields, { own, chainIds, now: nonce.now });
  if (!check.ok) throw refused(check.reason);

  const chain = chains.find(({ network }) => network.chainId === fields.chainId) as ChainClient;
  assertSigned(await verify(chain, fields, request));

  const token = createSessionToken();
  await prisma.$transaction(async (tx) => {
    if (request.oldToken !== undefined)
      await revokeSessionByToken(tx, hashSessionToken(request.oldToken));
    await insertSession(tx, {
      ownerId: await ensureOwner(tx, fields.address),
      tokenHash: hashSessionToken(token),
      userAgent: request.userAgent.slice(0, 300),
      ip: request.ip,
    });
  });
  return { address: fields.address, token };
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
        "No key of this account signed the message, and its chain cannot be asked whether it is a smart account. Try again later.",
    });
}

const refused = (reason: string): ApiError =>
  new ApiError("invalid_signature", {
    detail: `Sign-in refused: ${reason}.`,
    headers: { "www-authenticate": 'SIWE realm="purser"' },
  });
