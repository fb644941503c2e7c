/**
 * The program's side of OAuth: codes and refresh tokens are exchanged for tokens, once each; a second use revokes what
 * the first one got.
 */
import { createHash } from "node:crypto";
import { databaseNow, type Db, type PrismaClient } from "../../infra/db/prisma.ts";
import { noteAudit, NOBODY } from "../audit/store.ts";
import {
  endAccessToken,
  findConnection,
  findToken,
  isAccessToken,
  isRefreshToken,
  issueTokens,
  revokeConnection,
  useRefreshToken,
  type Tokens,
} from "../auth/connections.ts";
import { CODE_PREFIX, hashSecret, isSecretShape } from "../auth/secrets.ts";
import { assertNotStopped } from "../owners/store.ts";
import { OauthError } from "./errors.ts";
import { findCode, noteClientUse, useCode } from "./store.ts";

interface TokenCall {
  prisma: PrismaClient;
  requestId: string;
}

/** The reason in the audit; the program does not send one. */
type Reason = "code used twice" | "refresh token used twice" | "asked by the program";

const badGrant = () =>
  new OauthError(
    "invalid_grant",
    "It is invalid, used, expired, or was issued to a different program.",
  );

/** S256 (RFC 7636 section 4.6). */
const challengeOf = (verifier: string): string =>
  createHash("sha256").update(verifier).digest("base64url");

export async function exchangeCode(
  call: TokenCall,
  shown: { code: string; clientId: string; redirectUri: string | undefined; verifier: string },
): Promise<Tokens> {
  const { code, clientId, redirectUri, verifier } = shown;
  if (!/^[A-Za-z0-9._~-]{43,128}$/.test(verifier))
    throw new OauthError(
      "invalid_request",
      "code_verifier must be 43 to 128 unreserved characters.",
    );
  if (!isSecretShape(CODE_PREFIX, code)) throw badGrant();
  const codeHash = hashSecret(code);
  const codeChallenge = challengeOf(verifier);
  // A refusal must be committed as well, so it is returned instead of thrown.
  const tokens = await call.prisma.$transaction(async (tx) => {
    const isUsed = await useCode(tx, { codeHash, clientId, redirectUri, codeChallenge });
    const found = await findCode(tx, codeHash);
    if (!found) return undefined;
    if (isUsed) return tokensFor(tx, found.keyId, clientId);
    if (found.isUsed) await end(tx, call, found.keyId, "code used twice");
    return undefined;
  });
  if (!tokens) throw badGrant();
  return tokens;
}

export async function renew(
  call: TokenCall,
  shown: { refreshToken: string; clientId: string },
  /** Counts a renewal of this connection; throws if there were too many. */
  countFor: (keyId: string) => void | Promise<void>,
): Promise<Tokens> {
  const { refreshToken, clientId } = shown;
  if (!isRefreshToken(refreshToken)) throw badGrant();
  const found = await findToken(call.prisma, refreshToken);
  const connection = found && (await findConnection(call.prisma, found.keyId));
  // The token belongs to another program: it stays valid, and the caller learns nothing.
  if (!found || connection?.clientId !== clientId) throw badGrant();
  if (!found.isUsed) await countFor(found.keyId);
  const tokens = await call.prisma.$transaction(async (tx) => {
    if (await useRefreshToken(tx, refreshToken)) return tokensFor(tx, found.keyId, clientId);
    const now = await findToken(tx, refreshToken);
    if (now?.isUsed === true) await end(tx, call, found.keyId, "refresh token used twice");
    return undefined;
  });
  if (!tokens) throw badGrant();
  return tokens;
}

async function tokensFor(tx: Db, keyId: string, clientId: string): Promise<Tokens | undefined> {
  const connection = await findConnection(tx, keyId);
  if (connection?.isAlive !== true || connection.clientId !== clientId) return undefined;
  // The code or the token stays unused, so that the program can continue after the owner resumes.
  await assertNotStopped(tx, connection.ownerId);
  await noteClientUse(tx, clientId);
  return issueTokens(tx, connection);
}

/** RFC 7009: the response is always the same. Revoking a refresh token ends the connection. */
export async function revoke(
  call: TokenCall,
  shown: { token: string; clientId: string | undefined },
): Promise<void> {
  const { token, clientId } = shown;
  if (!isRefreshToken(token) && !isAccessToken(token)) return;
  const found = await findToken(call.prisma, token);
  const connection = found && (await findConnection(call.prisma, found.keyId));
  if (!found || (clientId !== undefined && connection?.clientId !== clientId)) return;
  await call.prisma.$transaction(async (tx) => {
    if (found.kind === "access") await endAccessToken(tx, token);
    else await end(tx, call, found.keyId, "asked by the program");
  });
}

async function end(tx: Db, call: TokenCall, keyId: string, reason: Reason): Promise<void> {
  const connection = await findConnection(tx, keyId);
  if (!connection || !(await revokeConnection(tx, connection))) return;
  await noteAudit(tx, {
    ownerId: connection.ownerId,
    agentId: connection.agentId,
    actor: NOBODY,
    action: "connection.revoked",
    before: { id: keyId, label: connection.label },
    after: { by: reason, at: (await databaseNow(tx)).toISOString() },
    requestId: call.requestId,
  });
}
