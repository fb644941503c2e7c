// An OAuth client, step by step, so that a test can do any step wrongly.
import { createHash, randomBytes } from "node:crypto";
import type { TestApp } from "./app.ts";
import { asOwner, type SignedInOwner } from "./owner.ts";

type World = Pick<TestApp, "app" | "config">;

export const CALLBACK = "http://127.0.0.1/callback";

export const pkce = () => {
  const verifier = randomBytes(32).toString("base64url");
  return { verifier, challenge: createHash("sha256").update(verifier).digest("base64url") };
};

export const tryRegister = (
  { app }: World,
  metadata: Record<string, unknown> = {},
  from = "127.0.0.1",
) =>
  app.inject({
    method: "POST",
    url: "/oauth/register",
    remoteAddress: from,
    headers: { "content-type": "application/json" },
    payload: JSON.stringify({
      client_name: "Test Program",
      redirect_uris: [CALLBACK],
      ...metadata,
    }),
  });

export async function register(
  world: World,
  metadata: Record<string, unknown> = {},
): Promise<string> {
  const answer = await tryRegister(world, metadata);
  if (answer.statusCode !== 201) throw new Error(`not registered: ${answer.body}`);
  return answer.json<{ client_id: string }>().client_id;
}

/** Posts the authorization parameters, as the consent page does with its own URL. */
export const tryRequestConsent = (
  world: World,
  owner: Pick<SignedInOwner, "headers">,
  parameters: Record<string, unknown>,
) =>
  world.app.inject({
    method: "POST",
    url: "/api/oauth/requests",
    headers: owner.headers,
    payload: JSON.stringify({
      response_type: "code",
      redirect_uri: CALLBACK,
      code_challenge: pkce().challenge,
      code_challenge_method: "S256",
      resource: `${world.config.publicUrl}/mcp`,
      state: "the state",
      ...parameters,
    }),
  });

export async function requestConsent(
  world: World,
  owner: Pick<SignedInOwner, "headers">,
  clientId: string,
  parameters: Record<string, unknown> = {},
): Promise<{ id: string; label: string; place: string; keyExpiresAt: string }> {
  const answer = await tryRequestConsent(world, owner, { client_id: clientId, ...parameters });
  if (answer.statusCode !== 201) throw new Error(`no consent request: ${answer.body}`);
  return answer.json();
}

/** Allows the connection, with the owner's wallet signature. */
export const allow = (world: World, owner: SignedInOwner, consentId: string, agentId: string) =>
  asOwner(world.app, owner, {
    method: "POST",
    url: `/api/oauth/requests/${consentId}/allow`,
    body: { agentId },
  });

interface Code {
  clientId: string;
  code: string;
  verifier: string;
}

export async function codeFor(
  world: World,
  owner: SignedInOwner,
  agentId: string,
  clientId?: string,
): Promise<Code> {
  const id = clientId ?? (await register(world));
  const { verifier, challenge } = pkce();
  const consent = await requestConsent(world, owner, id, { code_challenge: challenge });
  const answer = await allow(world, owner, consent.id, agentId);
  if (answer.statusCode !== 200) throw new Error(`not allowed: ${answer.body}`);
  const { redirectTo } = answer.json<{ redirectTo: string }>();
  const code = new URL(redirectTo).searchParams.get("code") ?? "";
  return { clientId: id, code, verifier };
}

export const post = ({ app }: World, path: string, form: Record<string, string>) =>
  app.inject({
    method: "POST",
    url: path,
    headers: { "content-type": "application/x-www-form-urlencoded" },
    payload: new URLSearchParams(form).toString(),
  });

export const exchange = (
  world: World,
  { clientId, code, verifier }: Code,
  other: Record<string, string> = {},
) =>
  post(world, "/oauth/token", {
    grant_type: "authorization_code",
    client_id: clientId,
    code,
    code_verifier: verifier,
    redirect_uri: CALLBACK,
    ...other,
  });

export const renew = (
  world: World,
  { clientId, refreshToken }: { clientId: string; refreshToken: string },
  other: Record<string, string> = {},
) =>
  post(world, "/oauth/token", {
    grant_type: "refresh_token",
    client_id: clientId,
    refresh_token: refreshToken,
    ...other,
  });

interface Connected {
  clientId: string;
  connectionId: string;
  accessToken: string;
  refreshToken: string;
}

export async function connect(
  world: World,
  owner: SignedInOwner,
  agentId: string,
  clientId?: string,
): Promise<Connected> {
  const code = await codeFor(world, owner, agentId, clientId);
  const answer = await exchange(world, code);
  if (answer.statusCode !== 200) throw new Error(`no tokens: ${answer.body}`);
  const tokens = answer.json<{ access_token: string; refresh_token: string }>();
  const listed = await world.app.inject({
    url: `/api/agents/${agentId}/connections`,
    headers: owner.headers,
  });
  const [newest] = listed.json<{ items: { id: string }[] }>().items;
  return {
    clientId: code.clientId,
    connectionId: newest?.id ?? "",
    accessToken: tokens.access_token,
    refreshToken: tokens.refresh_token,
  };
}

/** One tool call with a bearer token, as sent by an MCP client without a session. */
export const callTool = (
  { app }: World,
  token: string,
  name = "wallet_status",
  args: Record<string, unknown> = {},
) =>
  app.inject({
    method: "POST",
    url: "/mcp",
    headers: {
      authorization: `Bearer ${token}`,
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
    },
    payload: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { name, arguments: args },
    }),
  });
