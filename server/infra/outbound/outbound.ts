/**
 * All outbound requests to URLs that a third party chose (paid fetches, listing probes) go through here, under the SSRF
 * rules of this folder. It follows no redirects, sends only what it is given, and returns a body of bounded size or
 * throws OutboundError.
 */
import type { Readable } from "node:stream";
import { isIP } from "node:net";
import { Agent } from "undici";
import {
  isForbiddenAddress,
  OutboundError,
  toOutboundError,
  guardedConnector,
  systemResolver,
  parseTarget,
  type Resolver,
  type TargetRules,
} from "./guard.ts";
import fp from "fastify-plugin";
import { VERSION } from "../version.ts";
import { readBody, type Truncation } from "./body.ts";

export interface OutboundRequest {
  url: string | URL;
  method?: string;
  headers?: Record<string, string>;
  body?: string | Uint8Array;
  /** The time for everything: lookup, connection, headers and the last byte of the body. */
  timeoutMs?: number;
  maxBytes?: number;
  /** Called for each decompressed chunk of the body before it is kept; false ends the request as `too_large`. */
  mayRead?: (bytes: number) => boolean;
  /** True: once headers arrived, a partial body is returned as well. False: all of it or an error. */
  isPartialWanted?: boolean;
  signal?: AbortSignal;
}

export interface OutboundResponse {
  status: number;
  /** Lower-case names. A header that was sent twice keeps both values, so that the reader can refuse it. */
  headers: Record<string, string | string[] | undefined>;
  body: Buffer;
  /** Why the body is incomplete. */
  truncated?: Truncation;
  /** The body is still compressed in this way. */
  contentEncoding?: string;
}

export interface OutboundOptions extends TargetRules {
  userAgent: string;
  resolver?: Resolver;
}

/** Marks a request whose URL a third party chose. Callers can neither set nor remove it. */
export const OUTBOUND_HEADER = "x-purser-outbound";

export const DEFAULT_TIMEOUT_MS = 30_000;
const MAX_TIMEOUT_MS = 120_000;
export const MAX_BODY_BYTES = 5 * 1024 * 1024;
/** Payment requirements are in a header and may contain schemas; a megabyte is an attack. */
const MAX_HEADER_BYTES = 64 * 1024;
const CONNECT_TIMEOUT_MS = 5_000;
const MAX_CONNECTIONS_PER_ORIGIN = 128;

export class Outbound {
  readonly #options: OutboundOptions;
  /** Two agents, so that a socket to a private origin is never reused for a checked one. */
  readonly #checked: Agent;
  readonly #private: Agent;

  constructor(options: OutboundOptions) {
    this.#options = options;
    this.#checked = this.#agent(true);
    this.#private = this.#agent(false);
  }

  /**
   * Throws OutboundError("blocked") for a URL that would be refused without a DNS lookup, including literal addresses.
   */
  assertAllowed(url: string | URL): URL {
    const target = parseTarget(url, this.#options);
    const host = target.url.hostname.replaceAll(/^\[|\]$/g, "");
    if (!target.isPrivate && isIP(host) !== 0 && isForbiddenAddress(host))
      throw new OutboundError("blocked");
    return target.url;
  }

  async request(request: OutboundRequest): Promise<OutboundResponse> {
    const { url, isPrivate } = parseTarget(request.url, this.#options);
    const timeoutMs = Math.min(request.timeoutMs ?? DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS);
    const deadline = AbortSignal.timeout(Math.max(1, timeoutMs));
    const signal = request.signal ? AbortSignal.any([deadline, request.signal]) : deadline;
    let stream: Readable | undefined;
    try {
      const agent = isPrivate ? this.#private : this.#checked;
      const response = await agent.request({
        origin: url.origin,
        path: `${url.pathname}${url.search}`,
        method: request.method ?? "GET",
        headers: {
          "user-agent": this.#options.userAgent,
          accept: "*/*",
          ...request.headers,
          "accept-encoding": "gzip",
          // Only to origins that the operator named; in local mode our own origin is one of them.
          ...(isPrivate ? { [OUTBOUND_HEADER]: "1" } : {}),
        },
        body: request.body ?? null,
        signal,
      });
      stream = response.body;
      const encoding = response.headers["content-encoding"];
      const read = await readBody(stream, {
        encoding: Array.isArray(encoding) ? encoding.join(", ") : (encoding ?? ""),
        maxBytes: request.maxBytes ?? MAX_BODY_BYTES,
        mayRead: request.mayRead ?? (() => true),
        isPartialWanted: request.isPartialWanted ?? false,
      });
      return { status: response.statusCode, headers: response.headers, ...read };
    } catch (error) {
      // The rest of the response is not wanted, so the socket is closed with it.
      stream?.on("error", () => undefined).destroy();
      throw toOutboundError(error);
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#checked.destroy(), this.#private.destroy()]);
  }

  /**
   * A kept-alive socket was checked when it connected and stays with that address, so its reuse for the same origin
   * skips no check.
   */
  #agent(isChecked: boolean): Agent {
    return new Agent({
      connect: guardedConnector({
        resolver: this.#options.resolver ?? systemResolver,
        connectTimeoutMs: CONNECT_TIMEOUT_MS,
        isChecked,
      }),
      connections: MAX_CONNECTIONS_PER_ORIGIN,
      pipelining: 1,
      maxHeaderSize: MAX_HEADER_BYTES,
      // The total timeout above decides; these two must only not end a request earlier.
      headersTimeout: MAX_TIMEOUT_MS,
      bodyTimeout: MAX_TIMEOUT_MS,
    });
  }
}

declare module "fastify" {
  interface FastifyInstance {
    /** Requests to URLs that a third party chose; nothing else in the service makes such requests. */
    outbound: Outbound;
  }
}

export default fp(
  async (app) => {
    const { config } = app;
    const outbound = new Outbound({
      isHttpAllowed: config.local !== undefined,
      privateOrigins: config.fetchPrivateOrigins,
      userAgent: `Purser/${VERSION} (+${config.publicUrl})`,
    });
    app.decorate("outbound", outbound);
    app.addHook("onClose", () => outbound.close());
  },
  { name: "outbound" },
);
