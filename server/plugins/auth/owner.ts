import cookie from "@fastify/cookie";
import fp from "fastify-plugin";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Address } from "viem";
import {
  findSession,
  noteSessionSeen,
  SESSION_ABSOLUTE_SECONDS,
  hashSessionToken,
  isSessionTokenShape,
} from "./sessions.ts";
import { ApiError } from "../../errors.ts";

export interface RequestOwner {
  id: string;
  /** Lower case, as stored. */
  address: Address;
  sessionId: string;
  sessionCreatedAt: Date;
  sessionExpiresAt: Date;
}

declare module "fastify" {
  interface FastifyRequest {
    /** Set on routes with `auth: "owner"`. */
    owner: RequestOwner;
  }
  interface FastifyInstance {
    ownOrigins: OwnOrigins;
    /** Refuses unsafe requests of other origins and form encodings (CSRF). Sign-in uses it as well. */
    requireOwnOrigin(request: FastifyRequest): void;
    sessionCookie: SessionCookie;
  }
}

export interface SessionCookie {
  /** The token the browser showed, if it could be one of ours. */
  read(request: FastifyRequest): string | undefined;
  set(reply: FastifyReply, token: string): void;
  clear(reply: FastifyReply): void;
}

const SAFE_METHODS = new Set(["GET", "HEAD", "OPTIONS"]);

export default fp(
  async (app) => {
    await app.register(cookie);
    const own = ownOrigins(app.config.publicUrl);
    const sessionCookie = createSessionCookie(own.isHttps, (header) => app.parseCookie(header));
    app.decorate("ownOrigins", own);
    app.decorate("sessionCookie", sessionCookie);
    app.decorateRequest("owner", null as unknown as RequestOwner);
    app.decorate("requireOwnOrigin", (request: FastifyRequest) => requireOwnOrigin(request, own));

    app.authenticators.set("owner", async (request, reply) => {
      const token = sessionCookie.read(request);
      if (token === undefined) throw new ApiError("session_required", CHALLENGE);
      const session = await findSession(app.pool, hashSessionToken(token));
      if (!session) {
        sessionCookie.clear(reply);
        throw await app.refused(request, new ApiError("session_required", CHALLENGE));
      }
      requireOwnOrigin(request, own);
      request.owner = {
        id: session.ownerId,
        address: session.address,
        sessionId: session.sessionId,
        sessionCreatedAt: session.createdAt,
        sessionExpiresAt: session.expiresAt,
      };
      if (session.isSeenStale) await noteSessionSeen(app.prisma, session.sessionId);
    });
  },
  { name: "auth-owner" },
);

const CHALLENGE = { headers: { "www-authenticate": 'SIWE realm="purser"' } };

function requireOwnOrigin(request: FastifyRequest, own: OwnOrigins): void {
  if (SAFE_METHODS.has(request.method)) return;
  const { origin } = request.headers;
  if (origin === undefined || !own.origins.has(origin)) {
    throw new ApiError("origin_not_allowed", {
      detail: `This request must come from ${[...own.origins][0] ?? ""}: its Origin header is ${origin === undefined ? "missing" : "another"}.`,
    });
  }
  // Forms and other cross-site "simple" requests cannot send JSON without asking first.
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
  // The prefix makes browsers refuse the cookie from a subdomain, from plain http or for one path.
  const name = isHttps ? "__Host-purser_session" : "purser_session";
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

/** Our own origins: PUBLIC_URL's. On a loopback address its other usual spelling is ours as well. */
export interface OwnOrigins {
  origins: ReadonlySet<string>;
  /** `host[:port]` of each, as a sign-in message names its domain. */
  hosts: ReadonlySet<string>;
  isHttps: boolean;
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
  };
}
