/**
 * How often anybody may ask: the one place where requests are counted. A request is counted for its address until its
 * caller has proven who it is, and for that agent, session or merchant afterwards. Nothing else that a request says of
 * itself (another credential, a cookie, a spelling) chooses what it is counted for.
 */
import { createHash } from "node:crypto";
import fp from "fastify-plugin";
import type { FastifyReply } from "fastify";
import { addressBucket } from "../../core/client-address.ts";
import { OwnBuckets, type LimitName, type Verdict } from "../../core/rate-limits.ts";
import { ApiError } from "../../errors.ts";
import { bucketLeases, deleteFullBuckets } from "./rate-limit-store.ts";
import { SharedBuckets } from "./shared-buckets.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** A limit of this route beside the general ones, for each caller. */
    limit?: LimitName;
  }
  interface FastifyRequest {
    /** Who has proven to be asking. Set by whoever proved it. */
    caller: { kind: "agent" | "session" | "merchant"; id: string } | undefined;
  }
  interface FastifyInstance {
    /** Counts one of these for somebody; throws `rate_limited`. */
    countFor(limit: LimitName, who: string): void | Promise<void>;
    /** A refused caller is counted for its address: the refusal, or `rate_limited` in its place. */
    refusal(request: FastifyRequest, reply: FastifyReply, error: unknown): unknown;
    /**
     * Looks a shown credential up. It is counted for the caller's address before, and only that count is taken back
     * when `isProven`. One that was proven here lately is not counted: others at its address cannot slow it down.
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

/** Credentials proven by this process, so that many; never what they are, only their hash. */
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
      tell(reply, verdict);
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
        // A fault says nothing of the credential; a refusal does.
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

    /** After the credential's proof: plugins/http/index.ts registers that before this. */
    app.addHook("onRequest", (request, reply, done) => {
      const { caller } = request;
      const { auth, limit } = request.routeOptions.config;
      const who = caller ? `${caller.kind}:${caller.id}` : addressBucket(request.ip);
      // An open facilitator has its own limits for strangers: paid APIs ask often.
      const general =
        caller === undefined
          ? auth === "facilitator"
            ? undefined
            : "address"
          : caller.kind === "merchant"
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

    app.jobs.addTask(
      "forget-rate-buckets",
      async () =>
        app.log.info({ buckets: await deleteFullBuckets(app.prisma) }, "old rows deleted"),
      { cron: "23 * * * *" },
    );
  },
  { name: "rate-limits" },
);

/** At once where the count is at hand: a promise for every request would be for nothing. */
function count(
  reply: FastifyReply,
  taken: Verdict | Promise<Verdict>,
  name: LimitName,
): Promise<void> | undefined {
  const decide = (verdict: Verdict): undefined => {
    tell(reply, verdict);
    mustBeAllowed(verdict, name);
    return undefined;
  };
  return taken instanceof Promise ? taken.then(decide) : decide(taken);
}

/** The tightest of the limits that counted the request is told. */
function tell(reply: FastifyReply, verdict: Verdict): void {
  const told = reply.getHeader("ratelimit-remaining");
  if (told !== undefined && Number(told) < verdict.remaining) return;
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
