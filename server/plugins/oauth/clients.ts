/** OAuth clients: metadata from dynamic registration (RFC 7591), or from the document whose URL is the client id. */
import { isRecord, plainWords, readForeignJson } from "../../core/foreign-text.ts";
import { ApiError } from "../../errors.ts";
import type { OutboundResponse } from "../../infra/outbound/outbound.ts";
import { OauthError } from "./errors.ts";
import { isRegistered, placeOfRedirect, whyNotRedirect } from "./redirects.ts";

export interface Client {
  id: string;
  name: string;
  redirectUris: string[];
}

const MAX_REDIRECTS = 10;
const MAX_NAME = 60;
const MAX_ID = 500;

/** Parses a client's metadata; throws what is invalid. */
export function readMetadata(metadata: Record<string, unknown>): Omit<Client, "id"> {
  const { redirect_uris: uris, grant_types: grants, response_types: responses } = metadata;
  if (!Array.isArray(uris) || uris.length === 0 || uris.length > MAX_REDIRECTS)
    throw new OauthError(
      "invalid_redirect_uri",
      `redirect_uris must have 1 to ${MAX_REDIRECTS} URLs.`,
    );
  const redirectUris = uris.map((uri: unknown, index) => {
    const why = typeof uri === "string" ? whyNotRedirect(uri) : "is not text";
    if (why !== undefined)
      throw new OauthError("invalid_redirect_uri", `redirect_uris[${index}] ${why}.`);
    return uri as string;
  });
  const supports = (list: unknown, word: string): boolean =>
    list === undefined || (Array.isArray(list) && list.includes(word));
  if (!supports(grants, "authorization_code"))
    throw new OauthError("invalid_client_metadata", "grant_types must name authorization_code.");
  if (!supports(responses, "code"))
    throw new OauthError("invalid_client_metadata", "response_types must name code.");
  const name = plainWords(metadata["client_name"], MAX_NAME);
  return { redirectUris, name: name === "" ? "Unnamed program" : name };
}

/** Whether the id is the URL of a document (draft-ietf-oauth-client-id-metadata-document). */
export const isDocumentId = (clientId: string): boolean => /^https?:\/\//i.test(clientId);

/** In local mode a document may be served over http. */
export function assertDocumentUrl(clientId: string, isHttpAllowed: boolean): URL {
  const refuse = (why: string) => refused(`The program's id ${why}.`);
  if (clientId.length > MAX_ID || !/^[\x21-\x7e]+$/.test(clientId) || !URL.canParse(clientId))
    throw refuse("is not the address of a description");
  const url = new URL(clientId);
  if (url.protocol !== "https:" && !(isHttpAllowed && url.protocol === "http:"))
    throw refuse("must be an https address");
  if (url.pathname === "/") throw refuse("names a host but no document");
  // The URL must be in canonical form, so that the same text is shown, compared and fetched.
  if (url.href !== clientId || url.hash !== "" || url.username !== "" || url.password !== "")
    throw refuse("is not in normal form");
  return url;
}

/** The document's metadata, if its id is its own URL: otherwise one program could impersonate another. */
export function readDocument(clientId: string, answer: OutboundResponse): Client {
  const type = String(answer.headers["content-type"] ?? "");
  const read =
    answer.status === 200 && /^application\/([\w.+-]+\+)?json\b/i.test(type)
      ? readForeignJson(() => JSON.parse(answer.body.toString("utf8")))
      : undefined;
  if (!read?.ok || !isRecord(read.value)) throw refused(UNREADABLE);
  const { value } = read;
  if (value["client_id"] !== clientId)
    throw refused("The program's description names a different program.");
  const method = value["token_endpoint_auth_method"];
  if (value["client_secret"] !== undefined || (method !== undefined && method !== "none"))
    throw refused(
      "The program's description requires a secret or a key. This service supports only PKCE (token_endpoint_auth_method none).",
    );
  try {
    return { id: clientId, ...readMetadata(value) };
  } catch (error) {
    if (!(error instanceof OauthError)) throw error;
    throw refused(`The program's description: ${error.message}`);
  }
}

/** The same message for every failure, because it must not reveal anything about our network. */
export const UNREADABLE = "The program's description could not be read.";

export const refused = (detail: string): ApiError => new ApiError("program_refused", { detail });

/** Returns a registered redirect URI, or throws without redirecting, not even an error (RFC 9700 section 4.11.2). */
export function assertRedirect(client: Client, redirectUri: string | undefined): string {
  if (redirectUri === undefined || redirectUri === "")
    throw new ApiError("return_address_refused", { detail: "redirect_uri is missing." });
  const why = whyNotRedirect(redirectUri);
  if (why !== undefined)
    throw new ApiError("return_address_refused", { detail: `redirect_uri ${why}.` });
  if (!isRegistered(redirectUri, client.redirectUris))
    throw new ApiError("return_address_refused", {
      detail: `The program did not register this address at ${placeOfRedirect(redirectUri)}.`,
    });
  return redirectUri;
}
