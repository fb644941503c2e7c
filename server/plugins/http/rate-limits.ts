/**
 * Rate limits: the one place where requests are counted. A request is counted for its address until its caller is
 * authenticated, and after that for the agent, session or merchant. No other part of a request (another credential, a
 * cookie, a spelling) influences what it is counted for.
 */
import { createHash } from "node:crypto";
import fp from "fastify-plugin";
import type { FastifyReply } from "fastify";
import { addressBucket } from "../../core/client-address.ts";
import type { LimitName } from "../../core/rate-limits.ts";
import { ApiError } from "../../errors.ts";
import { bucketLeases, OwnBuckets, SharedBuckets, type Verdict } from "./rate-buckets.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** A limit of this route for each caller, in addition to the general ones. */
    limit?: LimitName;
  }
  interface FastifyRequest {
    /** The authenticated caller. Set by the authenticator. */
    caller: { kind: "agent" | "session" | "merchant" | "cell"; id: string } | undefined;
  }
  interface FastifyInstance {
    /** Counts one request for this key; throws `rate_limited`. */
    countFor(limit: LimitName, who: string): void | Promise<void>;
    /** Counts a refused caller for its address: returns the refusal, or `rate_limited` instead. */
    refusal(request: FastifyRequest, reply: FastifyReply, error: unknown): unknown;
    /**
     * Looks up a credential. The attempt is counted for the caller's address first, and the count is returned if
     * `isProven`. A credential that was recently verified here is not counted, so that others at its address cannot
     * slow it down.
     */
    proveCredential<T>(
      request: FastifyRequest,
      shown: string | Uint8Array,
      proof: Proof<T>,
    ): Promise<T>;
  }
}

interface Proof<T> {
  look: () => Promise<T> | T;
  isProven: (found: T) => boolean;
}

/** How many verified credentials this process remembers, by hash only. */
const MAX_PROVEN = 20_000;
const WARN_EVERY_MS = 10_000;

export default fp(
  async (app) => {
    const limits = app.config.rateLimits;
    const own = new OwnBuckets();
    const proven = new Set<string>();
    let warnedAtMs = -Infinity;
    const shared = new SharedBuckets(bucketLeases(app.pool), (error) => {
      if (performance.now() - warnedAtMs < WARN_EVERY_MS) return;
      warnedAtMs = performance.now();
      app.log.warn({ err: error }, "shared limits cannot be read; this process counts separately");
    });

    const take = (name: LimitName, who: string): Verdict | Promise<Verdict> => {
      const { perMinute, isShared } = limits[name];
      const key = `${name}:${who}`;
      return isShared ? shared.take(key, perMinute) : own.take(key, perMinute);
    };

    app.decorateRequest("caller", undefined);
    app.decorate("countFor", (name, who) => {
      const verdict = take(name, who);
      if (verdict instanceof Promise) return verdict.then((late) => mustBeAllowed(late, name));
      return mustBeAllowed(verdict, name);
    });
    app.decorate("refusal", (request, reply, error) => {
      if (!(error instanceof ApiError) || error.code === "rate_limited") return error;
      const verdict = own.take(`address:${addressBucket(request.ip)}`, limits.address.perMinute);
      setHeaders(reply, verdict);
      return verdict.allowed ? error : limited(verdict, "address");
    });
    app.decorate("proveCredential", async (request, shown, { look, isProven }) => {
      const hash = createHash("sha256").update(shown).digest("base64url");
      const { perMinute } = limits.unproven;
      const key = `unproven:${addressBucket(request.ip)}`;
      const wasProven = proven.has(hash);
      if (!wasProven) mustBeAllowed(own.take(key, perMinute), "unproven");
      let found;
      try {
        found = await look();
      } catch (error) {
        // An internal error says nothing about the credential; a refusal does.
        if (error instanceof ApiError && error.status < 500) proven.delete(hash);
        else if (!wasProven) own.giveBack(key, perMinute);
        throw error;
      }
      proven.delete(hash);
      if (isProven(found)) {
        if (!wasProven) own.giveBack(key, perMinute);
        proven.add(hash);
        if (proven.size > MAX_PROVEN) forgetOldest(proven);
      }
      return found;
    });

    /** After authentication, which plugins/http/index.ts registers before this. */
    app.addHook("onRequest", (request, reply, done) => {
      const { caller } = request;
      const { auth, limit } = request.routeOptions.config;
      const who = caller ? `${caller.kind}:${caller.id}` : addressBucket(request.ip);
      // An open facilitator has its own limits for third parties, because paid APIs send many requests.
      const general =
        caller === undefined
          ? auth === "facilitator"
            ? undefined
            : "address"
          : caller.kind === "merchant" || caller.kind === "cell"
            ? undefined
            : caller.kind;
      const countGeneral = () => general && count(reply, take(general, who), general);
      const countOwn = () => limit && count(reply, take(limit, who), limit);
      const counted = countGeneral();
      const last = counted === undefined ? countOwn() : counted.then(countOwn);
      const passed = (): void => done();
      if (last === undefined) return passed();
      last.then(passed, done);
    });
  },
  { name: "rate-limits" },
);

/** Synchronous if the count is available, which avoids a promise for most requests. */
function count(
  reply: FastifyReply,
  taken: Verdict | Promise<Verdict>,
  name: LimitName,
): Promise<void> | undefined {
  const decide = (verdict: Verdict): undefined => {
    setHeaders(reply, verdict);
    mustBeAllowed(verdict, name);
    return undefined;
  };
  return taken instanceof Promise ? taken.then(decide) : decide(taken);
}

/** The headers show the tightest of the limits that counted the request. */
function setHeaders(reply: FastifyReply, verdict: Verdict): void {
  const shownRemaining = reply.getHeader("ratelimit-remaining");
  if (shownRemaining !== undefined && Number(shownRemaining) < verdict.remaining) return;
  reply.headers({
    "ratelimit-limit": String(verdict.limit),
    "ratelimit-remaining": String(verdict.remaining),
    "ratelimit-reset": String(seconds(verdict.resetMs)),
  });
}

function mustBeAllowed(verdict: Verdict, name: LimitName): void {
  if (!verdict.allowed) throw limited(verdict, name);
}

const DETAILS: Partial<Record<LimitName, string>> = {
  unproven: "Too many invalid credentials from this address. Wait, then check the credential.",
};

function limited(verdict: Verdict, name: LimitName): ApiError {
  const retryAfterSeconds = Math.max(1, seconds(verdict.retryAfterMs));
  return new ApiError("rate_limited", {
    detail: DETAILS[name] ?? `At most ${verdict.limit} requests per minute (limit: ${name}).`,
    extra: { retryAfterSeconds },
    headers: {
      "retry-after": String(retryAfterSeconds),
      "ratelimit-limit": String(verdict.limit),
      "ratelimit-remaining": "0",
      "ratelimit-reset": String(seconds(verdict.resetMs)),
    },
  });
}

const seconds = (ms: number): number => Math.ceil(ms / 1000);

function forgetOldest(set: Set<string>): void {
  for (const oldest of set) {
    set.delete(oldest);
    return;
  }
}
