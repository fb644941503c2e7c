// The official MCP client with an in-memory OAuth provider, and a listener for the browser's redirect.
import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { OAuthClientProvider } from "@modelcontextprotocol/sdk/client/auth.js";
import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type {
  OAuthClientInformationMixed,
  OAuthTokens,
} from "@modelcontextprotocol/sdk/shared/auth.js";
import type { Test } from "tap";

export class MemoryProvider implements OAuthClientProvider {
  readonly redirectUrl: string;
  readonly sentState = randomBytes(16).toString("base64url");
  readonly clientMetadataUrl?: string;
  authorizationUrl: URL | undefined;
  client: OAuthClientInformationMixed | undefined;
  saved: OAuthTokens | undefined;
  #verifier = "";

  constructor(redirectUrl: string, clientMetadataUrl?: string) {
    this.redirectUrl = redirectUrl;
    if (clientMetadataUrl !== undefined) this.clientMetadataUrl = clientMetadataUrl;
  }

  get clientMetadata() {
    return {
      client_name: "Official Client",
      redirect_uris: [this.redirectUrl],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
    };
  }
  state = () => this.sentState;
  clientInformation = () => this.client;
  saveClientInformation = (client: OAuthClientInformationMixed) => void (this.client = client);
  tokens = () => this.saved;
  saveTokens = (tokens: OAuthTokens) => void (this.saved = tokens);
  redirectToAuthorization = (url: URL) => void (this.authorizationUrl = url);
  saveCodeVerifier = (verifier: string) => void (this.#verifier = verifier);
  codeVerifier = () => this.#verifier;
}

export interface Callback {
  url: string;
  /** The URL that the browser requested. */
  came: Promise<URL>;
}

/** A local HTTP listener for the redirect, like that of a desktop client. */
export async function listenForCallback(t: Test): Promise<Callback> {
  let arrived: (url: URL) => void = () => undefined;
  const came = new Promise<URL>((resolve) => {
    arrived = resolve;
  });
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? "/", "http://127.0.0.1");
    response.setHeader("content-type", "text/html").end("<h1>You may close this window.</h1>");
    if (url.pathname === "/callback") arrived(url);
  });
  await new Promise<void>((done) => {
    server.listen(0, "127.0.0.1", done);
  });
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/callback`, came };
}

/** Connects. If the owner's consent is needed, `consent` takes a browser from the authorization URL to the callback. */
export async function connectClient(
  mcpUrl: string,
  provider: MemoryProvider,
  consent: (authorizationUrl: URL) => Promise<URL>,
): Promise<Client> {
  const transport = () =>
    new StreamableHTTPClientTransport(new URL(mcpUrl), { authProvider: provider });
  const first = transport();
  const client = new Client({ name: "official", version: "1" });
  try {
    await client.connect(first);
    return client;
  } catch (error) {
    if (!(error instanceof UnauthorizedError) || !provider.authorizationUrl) throw error;
  }
  const back = await consent(provider.authorizationUrl);
  await first.finishAuth(back.searchParams.get("code") ?? "");
  const second = new Client({ name: "official", version: "1" });
  await second.connect(transport());
  return second;
}
