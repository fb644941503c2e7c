/**
 * The owner's side of OAuth: a program's request is shown in one session, and granted only with the owner's wallet
 * signature.
 */
import type { FastifyInstance, FastifyRequest } from "fastify";
import { newId } from "../../core/ids.ts";
import { ApiError } from "../../errors.ts";
import { secondsAfter } from "../../infra/db/prisma.ts";
import type { ConsentRequest } from "../../schemas/oauth.ts";
import { changeAgent, type LockedAgent, type OwnerCall } from "../agents/change.ts";
import { insertConnection } from "../auth/connections.ts";
import { CODE_PREFIX, createSecret, hashSecret } from "../auth/secrets.ts";
import {
  assertDocumentUrl,
  assertRedirect,
  isDocumentId,
  readDocument,
  refused,
  UNREADABLE,
  type Client,
} from "./clients.ts";
import { resourceOf } from "./metadata.ts";
import { labelOf, placeOfRedirect, redirectTo } from "./redirects.ts";
import {
  decideRequest,
  findClient,
  findOpenRequest,
  insertRequest,
  keepDocument,
  noteClientUse,
  type RequestRow,
} from "./store.ts";

/** The lifetime of a connection, which is in the order that the owner's wallet signs. */
const CONNECTION_SECONDS = 90 * 24 * 3600;
const DOCUMENT_BYTES = 16 * 1024;
const DOCUMENT_MS = 5_000;
const MAX_STATE = 1_000;

type Parameters = Partial<Record<string, unknown>>;

/** Opens a consent for this session. Errors are redirected to the program only after its redirect URI was verified. */
export async function readConsentRequest(
  app: FastifyInstance,
  owner: FastifyRequest["owner"],
  given: Parameters,
  issuer: string,
): Promise<ConsentRequest> {
  const text = (name: string): string | undefined => {
    const value = given[name];
    return typeof value === "string" && value !== "" ? value : undefined;
  };
  const client = await clientOf(app, text("client_id"));
  const redirectUri = assertRedirect(client, text("redirect_uri"));
  const state = text("state") ?? null;
  const fault = whyNot(text, resourceOf(issuer));
  if (fault) {
    const { error, description } = fault;
    throw new ApiError("validation_failed", {
      detail: `The program's request is invalid: ${description}`,
      extra: {
        place: placeOfRedirect(redirectUri),
        redirectTo: redirectTo(redirectUri, {
          error,
          error_description: description,
          state: state !== null && state.length > MAX_STATE ? null : state,
          iss: issuer,
        }),
      },
    });
  }
  const row = await app.prisma.$transaction((tx) =>
    insertRequest(tx, {
      id: newId("oar"),
      ownerId: owner.id,
      sessionId: owner.sessionId,
      clientId: client.id,
      clientName: client.name,
      redirectUri,
      state,
      codeChallenge: text("code_challenge") ?? "",
      label: labelOf(client.name, redirectUri),
    }),
  );
  return viewRequest(row);
}

/** What else is invalid in the request, as an OAuth error. */
function whyNot(
  text: (name: string) => string | undefined,
  resource: string,
): { error: string; description: string } | undefined {
  const invalid = (description: string) => ({ error: "invalid_request", description });
  if (text("response_type") !== "code")
    return { error: "unsupported_response_type", description: "response_type must be code." };
  if (text("code_challenge_method") !== "S256")
    return invalid("PKCE is required: code_challenge_method must be S256.");
  if (!/^[A-Za-z0-9_-]{43}$/.test(text("code_challenge") ?? ""))
    return invalid("code_challenge must be the SHA-256 of the verifier, in base64url.");
  if ((text("state")?.length ?? 0) > MAX_STATE)
    return invalid(`state is longer than ${MAX_STATE} characters.`);
  return isResource(text("resource"), resource)
    ? undefined
    : { error: "invalid_target", description: `resource must be ${resource}.` };
}

/** Clients without support for resource indicators name none: there is only one resource. */
export const isResource = (requested: string | undefined, resource: string): boolean =>
  requested === undefined || requested.replace(/\/$/, "") === resource;

async function clientOf(app: FastifyInstance, clientId: string | undefined): Promise<Client> {
  if (clientId === undefined) throw refused("client_id is missing.");
  const isLocal = app.config.local !== undefined;
  const isDocument = isDocumentId(clientId);
  if (isDocument) assertDocumentUrl(clientId, isLocal);
  const known = await findClient(app.prisma, clientId);
  if (known?.isFresh === true) return known;
  if (!isDocument)
    throw refused("This program is not registered, or its registration expired unused.");
  // The outbound client follows no redirects and refuses private addresses.
  const answer = await app.outbound
    .request({
      url: clientId,
      headers: { accept: "application/json" },
      maxBytes: DOCUMENT_BYTES,
      timeoutMs: DOCUMENT_MS,
    })
    .catch((cause: unknown) => {
      app.log.info({ err: cause }, "a program's description was not read");
      throw refused(UNREADABLE);
    });
  const client = readDocument(clientId, answer);
  await keepDocument(app.prisma, client);
  return client;
}

/** In whole seconds, as in an order, and the same for each call. */
const keyEnd = ({ createdAt }: RequestRow): Date =>
  new Date(Math.floor(secondsAfter(createdAt, CONNECTION_SECONDS).getTime() / 1000) * 1000);

const viewRequest = (row: RequestRow): ConsentRequest => ({
  id: row.id,
  thirdParty: { untrusted: true, name: row.clientName, redirectUri: row.redirectUri },
  place: placeOfRedirect(row.redirectUri),
  describedAt: isDocumentId(row.clientId) ? new URL(row.clientId).host : null,
  label: row.label,
  keyExpiresAt: keyEnd(row).toISOString(),
  expiresAt: row.expiresAt.toISOString(),
});

interface Answer {
  requestId: string;
  sessionId: string;
  issuer: string;
}

/**
 * Grants the request. A connection is a new key, so it needs the signature of the owner's wallet. The key, the code and
 * the end of the request are written in one transaction.
 */
export async function allow(
  call: OwnerCall,
  { requestId, sessionId, issuer }: Answer,
  agentId: string,
): Promise<string> {
  const requested = { requestId, sessionId, ownerId: call.owner.id };
  const work = async ({ tx, audit, permitKey }: LockedAgent) => {
    const request = await findOpenRequest(tx, requested);
    if (!request) throw requestOver();
    const expiresAt = keyEnd(request);
    await permitKey(request.label, expiresAt);
    const keyId = newId("key");
    const code = createSecret(CODE_PREFIX);
    const { clientId, clientName, redirectUri, label, state } = request;
    const program = { clientId, clientName, redirectUri };
    await insertConnection(tx, { keyId, agentId, label, expiresAt, program });
    if (!(await decideRequest(tx, requested, { keyId, codeHash: hashSecret(code) })))
      throw requestOver();
    await noteClientUse(tx, clientId);
    const after = { id: keyId, label, ...program, expiresAt: expiresAt.toISOString() };
    await audit({ action: "connection.granted", before: null, after });
    return redirectTo(redirectUri, { code, state, iss: issuer });
  };
  return changeAgent(call, agentId, work, "IssueKey");
}

export async function deny(call: OwnerCall, answer: Answer): Promise<string> {
  const { requestId, sessionId, issuer } = answer;
  const requested = { requestId, sessionId, ownerId: call.owner.id };
  const request = await findOpenRequest(call.prisma, requested);
  if (!request || !(await decideRequest(call.prisma, requested))) throw requestOver();
  const { redirectUri, state } = request;
  return redirectTo(redirectUri, { error: "access_denied", state, iss: issuer });
}

/** The same error for a request of another owner or session, an answered one, and an expired one. */
const requestOver = (): ApiError =>
  new ApiError("not_found", {
    detail: "This request is no longer open. Start again in the program that you want to connect.",
  });
