/**
 * Limits on connections: how many one address may hold, how long a request may take to arrive and a response to be
 * read, and the response to bytes that are not HTTP. Connections are counted by the address of the peer: behind a proxy
 * that is the proxy, whose own limits then apply to its clients, so a trusted proxy has no limit unless
 * CONNECTIONS_PER_ADDRESS is set.
 */
import type { Socket } from "node:net";
import fp from "fastify-plugin";
import type { FastifyInstance } from "fastify";
import { Counter } from "prom-client";
import { addressBucket } from "../../core/client-address.ts";
import { newId } from "../../core/ids.ts";
import { shareOf } from "../../core/worker-settings.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import { problemBody } from "./errors.ts";
import { fixedHeadersOf } from "./fixed-headers.ts";

const MAX_CONNECTIONS = 20_000;
/** A slower reader of a response is disconnected after the same time as a slow request. */
const MIN_BYTES_PER_SECOND = 1_024;
/** A line in the log for each limit that closed connections, at most this often. */
const LOG_EVERY_MS = 60_000;
/** How often a stopping service closes connections that have become idle. */
const STOPPING_LOOK_MS = 50;
/** A stopping service closes an unused connection, which browsers and proxies open in advance, after this time. */
const STOPPING_SILENT_MS = 1_000;
/** A stopping service gives a started request this long to arrive completely. */
const STOPPING_ARRIVAL_MS = 10_000;

interface Held {
  bucket: string;
  /** Since when data has been waiting for the reader, and how much it had read by then. */
  waitingSinceMs: number | undefined;
  takenBytes: number;
}

/** A limit on connections: the key that raises it, and what it closed since the last line about it. */
const limitOf = (key: string, limit: number, text: string) => ({
  key,
  limit,
  text,
  closed: 0,
  /** The latest one's address. */
  ip: undefined as string | undefined,
  loggedMs: Number.NEGATIVE_INFINITY,
});

export default fp(
  async (app) => {
    const { requestTimeoutMs } = app.config.timings;
    const { connectionsPerAddress, isLimited } = app.config;
    const share = shareOf(connectionsPerAddress, app.config);
    const cut = new Counter({
      name: "purser_connections_cut_total",
      help: "Connections that the service closed: too many from one address, too many in all, or a response not read in time",
      labelNames: ["reason"],
      registers: [app.metrics],
    });
    const held = new Map<Socket, Held>();
    const perAddress = new Map<string, number>();
    const { server } = app;
    server.maxConnections = MAX_CONNECTIONS;

    const limits = {
      too_many: limitOf(
        "CONNECTIONS_PER_ADDRESS",
        connectionsPerAddress,
        "one address has too many connections; raise the limit if it is a proxy or a client of yours",
      ),
      full: limitOf("WORKERS", MAX_CONNECTIONS, "this process has too many connections; run more"),
    };
    const note = (reason: keyof typeof limits, ip: string | undefined): void => {
      cut.inc({ reason });
      limits[reason].closed += 1;
      limits[reason].ip = ip;
    };
    const logClosed = (everyMs: number): void => {
      for (const limit of Object.values(limits)) {
        const { loggedMs, text, ...facts } = limit;
        const nowMs = performance.now();
        if (facts.closed === 0 || nowMs - loggedMs < everyMs) continue;
        app.log.warn(facts, text);
        Object.assign(limit, { closed: 0, loggedMs: nowMs });
      }
    };
    server.on("drop", (from?: { remoteAddress?: string }) => note("full", from?.remoteAddress));

    server.on("connection", (socket: Socket) => {
      const bucket = addressBucket(socket.remoteAddress ?? "");
      const count = (perAddress.get(bucket) ?? 0) + 1;
      if (count > share && isLimited(socket.remoteAddress ?? "")) {
        note("too_many", socket.remoteAddress);
        socket.destroy();
        return;
      }
      perAddress.set(bucket, count);
      held.set(socket, { bucket, waitingSinceMs: undefined, takenBytes: 0 });
      socket.once("close", () => {
        held.delete(socket);
        const left = (perAddress.get(bucket) ?? 1) - 1;
        if (left > 0) perAddress.set(bucket, left);
        else perAddress.delete(bucket);
      });
    });

    const timer = setInterval(
      () => {
        for (const [socket, state] of held)
          if (isTooSlow(socket, state, requestTimeoutMs)) {
            cut.inc({ reason: "slow_reader" });
            app.log.info(
              { ip: socket.remoteAddress },
              "a response was not read in time; closing the connection",
            );
            socket.destroy();
          }
        logClosed(LOG_EVERY_MS);
      },
      Math.min(1_000, requestTimeoutMs / 4),
    ).unref();
    app.addHook("preClose", async () => {
      logClosed(0);
      const sinceMs = performance.now();
      const closing = setInterval(() => {
        server.closeIdleConnections();
        const elapsedMs = performance.now() - sinceMs;
        for (const socket of held.keys()) closeUnsent(app, socket, elapsedMs);
      }, STOPPING_LOOK_MS).unref();
      server.once("close", () => {
        clearInterval(closing);
        clearInterval(timer);
      });
    });
  },
  { name: "sockets" },
);

/** Node's own record of the response in progress on a connection. */
type HttpSocket = Socket & {
  _httpMessage?: { headersSent: boolean; req: { complete: boolean } } | null;
};

/**
 * Closes a connection without a complete request. Node does not count it as idle, and a closing server no longer limits
 * the arrival time of requests, so its client could delay the stop without end. A complete request keeps its
 * connection.
 */
function closeUnsent(app: FastifyInstance, socket: HttpSocket, stoppingForMs: number): void {
  const { requestTimeoutMs } = app.config.timings;
  if (socket.bytesRead === 0) {
    if (stoppingForMs > Math.min(requestTimeoutMs, STOPPING_SILENT_MS)) socket.destroy();
    return;
  }
  if (stoppingForMs <= Math.min(requestTimeoutMs, STOPPING_ARRIVAL_MS)) return;
  if (socket.writable && socket._httpMessage?.req.complete !== true) {
    const late = Object.assign(new Error("late"), { code: "ERR_HTTP_REQUEST_TIMEOUT" });
    app.server.emit("clientError", late, socket);
  }
}

/** A reader that reads at a decent pace may take as long as it needs. */
function isTooSlow(socket: Socket, state: Held, graceMs: number): boolean {
  const waiting = socket.writableLength;
  const taken = socket.bytesWritten - waiting;
  const nowMs = performance.now();
  if (waiting === 0) {
    state.waitingSinceMs = undefined;
    return false;
  }
  if (state.waitingSinceMs === undefined) {
    state.waitingSinceMs = nowMs;
    state.takenBytes = taken;
    return false;
  }
  const elapsedMs = nowMs - state.waitingSinceMs;
  if (elapsedMs < graceMs) return false;
  if (taken - state.takenBytes < (MIN_BYTES_PER_SECOND * elapsedMs) / 1000) return true;
  // It has read something, so the measurement starts again.
  state.waitingSinceMs = nowMs;
  state.takenBytes = taken;
  return false;
}

const CODES: Record<string, ErrorCode> = {
  HPE_HEADER_OVERFLOW: "headers_too_large",
  ERR_HTTP_REQUEST_TIMEOUT: "request_timeout",
};

/** Responds to bytes that reached no route: malformed, too large or too slow. The bytes themselves are never logged. */
export function answerBrokenRequest(
  this: FastifyInstance,
  error: Error & { code?: string },
  socket: Socket,
): void {
  const code = CODES[error.code ?? ""] ?? "bad_request";
  const id = newId("req");
  if (error.code !== "ECONNRESET")
    this.log.info({ reqId: id, code, reason: error.code }, "a request could not be read");
  const { _httpMessage: answer } = socket as HttpSocket;
  // A response that has already started cannot be replaced.
  if (error.code === "ECONNRESET" || !socket.writable || answer?.headersSent === true) {
    socket.destroy();
    return;
  }
  const detail = code === "bad_request" ? "This is not an HTTP request." : undefined;
  const problem = new ApiError(code, detail === undefined ? {} : { detail });
  const body = JSON.stringify(problemBody(problem, id));
  const head = [
    `HTTP/1.1 ${problem.status} ${STATUS_TEXTS[problem.status] ?? "Bad Request"}`,
    "Connection: close",
    "Cache-Control: no-store",
    "Content-Type: application/problem+json; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
    ...Object.entries(fixedHeadersOf(this.config).open).map(([name, value]) => `${name}: ${value}`),
    `X-Request-Id: ${id}`,
  ];
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
  // Closes the connection even if the client does not read this, or keeps sending: the socket's own timeout would
  // restart with each byte.
  const limit = setTimeout(() => socket.destroy(), 1_000);
  socket.once("close", () => clearTimeout(limit));
}

const STATUS_TEXTS: Record<number, string> = {
  408: "Request Timeout",
  431: "Request Header Fields Too Large",
};
