/** Authentication: an agent's API key, an owner's session, a merchant's key. */
import fp from "fastify-plugin";
import type { FastifyRequest, FastifyReply } from "fastify";
import { ApiError, type ErrorCode } from "../../errors.ts";
import { keyHolders, noteKeyUse, tokenHolders, type KeyHolder } from "./api-keys.ts";
import { InternalPasses } from "./passes.ts";
import { proveFacilitatorKeys } from "./merchant-keys.ts";
import {
  ACCESS_TOKEN_PREFIX,
  API_KEY_PREFIX,
  assertOurCell,
  cellIn,
  hashSecret,
  isSecretShape,
} from "./secrets.ts";
import cookie from "@fastify/cookie";
import { OAUTH_SCOPE } from "../http/document.ts";
import { assertHere } from "./moved.ts";
import { sessionCookieName } from "../http/index.ts";
import { noRoute } from "../http/not-found.ts";
import type { Address } from "viem";
import { accountName } from "../../core/merchant-settings.ts";
import { PASSKEYS_CHAIN } from "../../core/passkeys.ts";
import { ROLES, type Role } from "../../core/teams.ts";
import {
  findSession,
  type SessionHolder,
  noteSessionSeen,
  SESSION_ABSOLUTE_SECONDS,
  hashSessionToken,
  isSessionTokenShape,
} from "./sessions.ts";

export default fp(
  async (app) => {
    app.decorate("ownOrigins", ownOrigins(app.config.publicUrl));
    await app.register(agent);
    await app.register(owner);
    proveFacilitatorKeys(app);
  },
  { name: "auth" },
);

/** The agent of the request's key. Paused and expired agents may still read. */
type RequestAgent = Omit<
  KeyHolder,
  "revoked" | "keyExpired" | "isUseStale" | "movedTo" | "movedUrl"
>;

declare module "fastify" {
  interface FastifyContextConfig {
    /** The resource that OAuth protects: an access token is accepted like a key here, and nowhere else. */
    oauth?: true;
  }
  interface FastifyRequest {
    /** Set on routes with `auth: "agent"`. */
    agent: RequestAgent;
  }
  interface FastifyInstance {
    /**
     * Calls our own API for an authenticated agent. The headers are valid for one injected request of this process,
     * whichever credential the agent used.
     */
    asAgent<T>(
      agent: RequestAgent,
      call: (headers: { authorization: string }) => Promise<T>,
    ): Promise<T>;
  }
}

/** No cache, so that a key revoked on one replica is refused by all at once. */
const agent = fp(
  async (app) => {
    const holderOfKey = keyHolders(app.pool);
    const holderOfToken = tokenHolders(app.pool);
    const passes = new InternalPasses<RequestAgent>();
    app.decorateRequest("agent", null as unknown as RequestAgent);
    app.decorate("asAgent", (agent, call) => passes.lend(agent, call));
    app.authenticators.set("agent", async (request) => {
      request.agent = await authenticate(request);
      request.caller = { kind: "agent", id: request.agent.id };
    });

    async function authenticate(request: FastifyRequest): Promise<RequestAgent> {
      const isOauth = request.routeOptions.config.oauth === true;
      const refuse = (code: ErrorCode, detail?: string) => {
        const origin = isOauth ? app.ownOrigins.originOf(request) : undefined;
        return refusal(code, challenge(code, origin), detail);
      };
      const shown = bearerOf(request);
      if (typeof shown !== "string") throw refuse("missing_api_key", shown.detail);
      const passed = passes.take(shown);
      if (passed) return passed;
      const isToken = isSecretShape(ACCESS_TOKEN_PREFIX, shown);
      if (isToken && !isOauth)
        throw refuse("invalid_access_token", "An access token works only for /mcp.");
      const hash = hashSecret(shown);
      const holder = await app.proveCredential(request, hash, {
        look: async () => {
          if (isToken) return holderOfToken(hash);
          return isSecretShape(API_KEY_PREFIX, shown) ? holderOfKey(hash) : undefined;
        },
        isProven: (found) => found !== undefined && !found.revoked && !found.keyExpired,
      });
      if (isToken && (!holder || holder.revoked || holder.keyExpired))
        throw refuse("invalid_access_token");
      if (!holder) {
        assertOurCell(app.config.cells?.self, cellIn(API_KEY_PREFIX, shown));
        throw refuse("invalid_api_key", UNKNOWN_KEY);
      }
      const { revoked, keyExpired, isUseStale, movedTo, movedUrl, ...agent } = holder;
      if (revoked) throw refuse("api_key_revoked");
      if (keyExpired) throw refuse("api_key_expired");
      assertHere({ movedTo, movedUrl });
      if (isUseStale) {
        // In the background: recording the last use must neither delay nor fail the request.
        noteKeyUse(app.pool, agent.apiKeyId).catch((error: unknown) =>
          app.log.warn(
            { err: error, apiKeyId: agent.apiKeyId },
            "the last use of a key was not recorded",
          ),
        );
      }
      return agent;
    }
  },
  { name: "auth-agent" },
);

const UNKNOWN_KEY = `This API key is unknown. Keys begin with \`${API_KEY_PREFIX}\` and are shown only once, when they are created.`;

/** The header only: a token in a URL would end up in logs and histories (RFC 6750 section 2.3). */
function bearerOf(request: FastifyRequest): string | { detail?: string } {
  const { authorization } = request.headers;
  if (authorization === undefined || authorization === "") return {};
  const [, key] = /^Bearer +([^\s]+) *$/i.exec(authorization) ?? [];
  return key ?? { detail: "The Authorization header must be `Bearer <AGENT_API_KEY>`." };
}

/** On routes with OAuth, the challenge names the metadata for clients (RFC 9728 section 5.1). */
function challenge(code: ErrorCode, origin: string | undefined): string {
  const error = code === "missing_api_key" ? [] : ['error="invalid_token"'];
  const place =
    origin === undefined
      ? []
      : [`resource_metadata="${origin}${RESOURCE_METADATA_PATH}"`, `scope="${OAUTH_SCOPE}"`];
  return `Bearer ${['realm="purser"', ...error, ...place].join(", ")}`;
}

function refusal(code: ErrorCode, challenge: string, detail?: string): ApiError {
  return new ApiError(code, {
    ...(detail === undefined ? {} : { detail }),
    headers: { "www-authenticate": challenge },
  });
}

export const RESOURCE_PATH = "/mcp";
export const RESOURCE_METADATA_PATH = `/.well-known/oauth-protected-resource${RESOURCE_PATH}`;

/** The person who acts for a team: an owner, too. */
export interface TeamMember {
  ownerId: string;
  address: Address;
  chainId: number;
  role: Role;
  /** The request, once its body is read. */
  sent: () => { method: string; path: string; body: unknown };
}

/** The account that acted: the owner's own, its recovery wallet's, or that of a member of the team. */
export const actorOf = ({
  address,
  second,
  member,
}: {
  address: Address;
  second?: { address: Address } | null;
  member?: { address: Address } | null;
}): Address => (member ?? second ?? { address }).address;

export interface RequestOwner {
  id: string;
  /** Lower case, as stored. */
  address: Address;
  /** The chain of its contract; 0 for an owner with a plain key; PASSKEYS_CHAIN for one without a wallet; TEAMS_CHAIN for a team. */
  chainId: number;
  /** Set if the owner's recovery wallet signed in: it may tighten rules, and withdraw to the owner. */
  second: { address: Address; chainId: number } | null;
  /** Set if a member of this team acts for it. */
  member: TeamMember | null;
  /** The passkey that signed in; null for a wallet. */
  passkeyId: string | null;
  sessionId: string;
  sessionCreatedAt: Date;
  sessionExpiresAt: Date;
}

declare module "fastify" {
  interface FastifyContextConfig {
    /** The owner's recovery wallet may call it too. */
    second?: true;
    /**
     * The role that a member of a team needs; false: only for people's own accounts. By default a viewer reads, an approver does
     * what a recovery wallet may, and all else is for admins.
     */
    team?: Role | false;
  }
  interface FastifyRequest {
    /** Set on routes with `auth: "owner"`. */
    owner: RequestOwner;
  }
  interface FastifyInstance {
    ownOrigins: OwnOrigins;
    /** Refuses unsafe requests of other origins and form encodings (CSRF protection). Sign-in uses it as well. */
    requireOwnOrigin(request: FastifyRequest): void;
    sessionCookie: SessionCookie;
  }
}

interface SessionCookie {
  /** The token from the browser's cookie, if it has the right form. */
  read(request: FastifyRequest): string | undefined;
  set(reply: FastifyReply, token: string): void;
  clear(reply: FastifyReply): void;
}

const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);

const owner = fp(
  async (app) => {
    await app.register(cookie);
    const own = app.ownOrigins;
    const sessionCookie = createSessionCookie(own.isHttps, (header) => app.parseCookie(header));
    app.decorate("sessionCookie", sessionCookie);
    app.decorateRequest("owner", null as unknown as RequestOwner);
    app.decorate("requireOwnOrigin", (request: FastifyRequest) => requireOwnOrigin(request, own));

    app.authenticators.set("owner", async (request) => {
      const session = await authenticate(request);
      requireOwnOrigin(request, own);
      if (request.owner.second && !mayCall(request))
        throw new ApiError("second_wallet_only_tightens");
      assertRole(request);
      if (session.isSeenStale) await noteSessionSeen(app.prisma, session.sessionId);
    });
    // All others get the answer of a route that does not exist.
    app.authenticators.set("operator", async (request) => {
      const session = await authenticate(request).catch((error: unknown) => {
        const isNobody =
          error instanceof ApiError && /^(session_required|other_cell)$/.test(error.code);
        throw isNobody ? noRoute(request) : error;
      });
      if (!isOperator(app.config.operators, request.owner)) throw noRoute(request);
      requireOwnOrigin(request, own);
      if (session.isSeenStale) await noteSessionSeen(app.prisma, session.sessionId);
    });

    async function authenticate(request: FastifyRequest): Promise<SessionHolder> {
      const token = sessionCookie.read(request);
      if (token === undefined)
        throw new ApiError("session_required", {
          ...CHALLENGE,
          ...(request.headers.authorization !== undefined && {
            detail: `An API key does not open ${request.method} ${String(request.routeOptions.url)}, which is for owners. Check the method and the path in /openapi.json.`,
          }),
        });
      const hash = hashSessionToken(token);
      const session = await app.proveCredential(request, hash, {
        look: () => findSession(app.pool, hash),
        isProven: (found) => found !== undefined,
      });
      // The cookie stays: by now the browser may have that of another session, which this answer would delete.
      if (!session) throw new ApiError("session_required", CHALLENGE);
      assertHere(session);
      request.caller = { kind: "session", id: session.sessionId };
      request.owner = {
        id: session.ownerId,
        address: session.address,
        chainId: session.chainId,
        second:
          session.secondAddress === null
            ? null
            : { address: session.secondAddress, chainId: session.secondChainId ?? 0 },
        member: memberIn(request, session),
        passkeyId: session.passkeyId,
        sessionId: session.sessionId,
        sessionCreatedAt: session.createdAt,
        sessionExpiresAt: session.expiresAt,
      };
      return session;
    }
  },
  { name: "auth-owner" },
);

/** The account itself must be named: neither its recovery wallet nor a team of it has the right. */
export function isOperator(
  operators: readonly string[],
  {
    address,
    chainId,
    second,
    member,
  }: Pick<RequestOwner, "address" | "chainId" | "second" | "member">,
): boolean {
  // An account with only passkeys has an address and no chain.
  const account = accountName({ address, chainId: chainId === PASSKEYS_CHAIN ? 0 : chainId });
  return second === null && member === null && operators.includes(account);
}

/** A recovery wallet may read everything, and change what the route allows it to. */
const mayCall = ({ method, routeOptions }: FastifyRequest): boolean =>
  SAFE_METHODS.has(method) || routeOptions.config.second === true;

function memberIn(
  request: FastifyRequest,
  { memberOwnerId: ownerId, memberAddress, memberChainId, role }: SessionHolder,
): TeamMember | null {
  if (role === null) return null;
  const sent = () => ({ method: request.method, path: request.url, body: request.body });
  return { ownerId, address: memberAddress, chainId: memberChainId, role, sent };
}

function assertRole({ owner: { member }, method, routeOptions: { config } }: FastifyRequest): void {
  if (!member) return;
  const byDefault = SAFE_METHODS.has(method) ? "viewer" : config.second ? "approver" : "admin";
  const needed = config.team ?? byDefault;
  if (needed === false)
    throw new ApiError("role_not_allowed", {
      detail: "This is for a person's own account: act for your own account first.",
    });
  if (ROLES.indexOf(member.role) < ROLES.indexOf(needed))
    throw new ApiError("role_not_allowed", {
      detail: `You are ${member.role} in this team, and this needs the role ${needed}.`,
    });
}

const CHALLENGE = { headers: { "www-authenticate": 'SIWE realm="purser"' } };

function requireOwnOrigin(request: FastifyRequest, own: OwnOrigins): void {
  if (SAFE_METHODS.has(request.method)) return;
  const { origin } = request.headers;
  if (origin === undefined || !own.origins.has(origin)) {
    throw new ApiError("origin_not_allowed", {
      detail: `This request must come from ${[...own.origins][0] ?? ""}: its Origin header is ${origin === undefined ? "missing" : "different"}.`,
    });
  }
  // Forms and other cross-site "simple" requests cannot send JSON without a CORS preflight.
  const mediaType = request.headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase();
  const hasBody =
    request.headers["transfer-encoding"] !== undefined ||
    Number(request.headers["content-length"] ?? 0) > 0;
  if (mediaType === "application/json" || (mediaType === undefined && !hasBody)) return;
  throw new ApiError("unsupported_media_type");
}

function createSessionCookie(
  isHttps: boolean,
  parse: (header: string) => Record<string, string | undefined>,
): SessionCookie {
  const name = sessionCookieName(isHttps);
  const attributes = { path: "/", httpOnly: true, sameSite: "strict", secure: isHttps } as const;
  return {
    read(request) {
      const { cookie: header } = request.headers;
      const token = header === undefined ? undefined : parse(header)[name];
      return token !== undefined && isSessionTokenShape(token) ? token : undefined;
    },
    set: (reply, token) =>
      void reply.setCookie(name, token, { ...attributes, maxAge: SESSION_ABSOLUTE_SECONDS }),
    clear: (reply) => void reply.clearCookie(name, attributes),
  };
}

/** Our own origins, from PUBLIC_URL. For a loopback address, the other usual name counts as well. */
export interface OwnOrigins {
  origins: ReadonlySet<string>;
  /** `host[:port]` of each, as a sign-in message names its domain. */
  hosts: ReadonlySet<string>;
  isHttps: boolean;
  /** The origin that this request used; OAuth clients expect the name that they use. */
  originOf(request: FastifyRequest): string;
}

const LOOPBACK_NAMES = ["localhost", "127.0.0.1"];

export function ownOrigins(publicUrl: string): OwnOrigins {
  const url = new URL(publicUrl);
  const port = url.port === "" ? "" : `:${url.port}`;
  const hosts = LOOPBACK_NAMES.includes(url.hostname)
    ? LOOPBACK_NAMES.map((name) => `${name}${port}`)
    : [url.host];
  return {
    hosts: new Set(hosts),
    origins: new Set(hosts.map((host) => `${url.protocol}//${host}`)),
    isHttps: url.protocol === "https:",
    originOf({ headers: { host = "" } }) {
      return hosts.includes(host) ? `${url.protocol}//${host}` : url.origin;
    },
  };
}
