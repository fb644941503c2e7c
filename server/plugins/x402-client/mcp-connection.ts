/**
 * A connection to a remote MCP server over streamable HTTP, for one call of one tool. Supports both current
 * revisions, JSON and streamed responses, and sessions.
 * Nothing is sent twice. Requests use the SSRF guard, and a response is held in memory only until the message
 * in it is found.
 */
import { parseExact, stringifyExact } from "../../core/exact-json.ts";
import { isRecord, parseForeignJson } from "../../core/foreign-text.ts";
import { OutboundError } from "../../infra/outbound/guard.ts";
import {
  DEFAULT_TIMEOUT_MS,
  type OutboundRequest,
  type OutboundResponse,
} from "../../infra/outbound/outbound.ts";
import { VERSION } from "../../infra/version.ts";
import type { SendRequest } from "./request.ts";

/** A JSON-RPC response to one of our requests, with numbers as they were written. */
interface Reply {
  result?: unknown;
  error?: Record<string, unknown>;
}

export interface Exchange {
  /** The HTTP response. */
  response: OutboundResponse;
  /** Undefined: it contains no response to this request. */
  reply: Reply | undefined;
  /** False: the server refused the connection itself, and the request was not sent. */
  isSent: boolean;
}

const CLIENT = { name: "purser", version: VERSION };
/** The last revision with a handshake, and the first without. */
const WITH_HANDSHAKE = "2025-11-25";
const WITHOUT_HANDSHAKE = "2026-07-28";
const REVISION = /^\d{4}-\d{2}-\d{2}$/;
const SESSION = "mcp-session-id";
const SESSION_PATTERN = /^[\x21-\x7e]{1,1024}$/;
const END_MS = 5_000;
/** Statuses that concern the client, not the protocol revision. */
const NOT_OF_REVISION: ReadonlySet<number> = new Set([401, 402, 403, 429]);
const TYPES = { accept: "application/json, text/event-stream", "content-type": "application/json" };

export class McpConnection {
  readonly #transport: SendRequest;
  #nextId = 1;
  #session: { url: string | URL; headers: Record<string, string> } | undefined;
  /** The headers of further requests; undefined until the connection is open. */
  #headers: Record<string, string> | undefined;
  #isStateless = false;

  constructor(transport: SendRequest) {
    this.#transport = transport;
  }

  /**
   * Opens the connection if needed, and sends one request. `first` is the HTTP request that carries it, with a
   * timeout for all steps.
   * A failure before the request itself is sent is marked `neverSent`.
   */
  async request(
    first: OutboundRequest,
    method: string,
    params: Record<string, unknown>,
  ): Promise<Exchange> {
    const deadlineMs = performance.now() + (first.timeoutMs ?? DEFAULT_TIMEOUT_MS);
    const timed = (): OutboundRequest => ({
      ...first,
      timeoutMs: Math.max(1, Math.ceil(deadlineMs - performance.now())),
    });
    const refused = await this.#open(timed).catch((error: unknown) => {
      if (!(error instanceof OutboundError)) throw error;
      const { failure, message: detail } = error;
      throw new OutboundError(failure, { detail, cause: error, neverSent: true });
    });
    if (refused) return { response: refused, reply: undefined, isSent: false };
    return this.#send(timed(), method, params);
  }

  /** Servers keep sessions until a DELETE. Best effort: nothing waits for it. */
  end(): void {
    const session = this.#session;
    if (!session) return;
    this.#session = undefined;
    this.#transport({ ...session, method: "DELETE", timeoutMs: END_MS, maxBytes: 1024 }).catch(
      () => undefined,
    );
  }

  /** Returns the server's response if the connection could not be opened. */
  async #open(timed: () => OutboundRequest): Promise<OutboundResponse | undefined> {
    if (this.#headers) return undefined;
    const request = timed();
    const { response, reply } = await this.#send(request, "initialize", {
      protocolVersion: WITH_HANDSHAKE,
      capabilities: {},
      clientInfo: CLIENT,
    });
    const { status } = response;
    // A server without the handshake responds with a JSON-RPC error.
    if (reply?.error && !NOT_OF_REVISION.has(status)) {
      this.#isStateless = true;
      this.#headers = { "mcp-protocol-version": WITHOUT_HANDSHAKE };
      return undefined;
    }
    const revision = isRecord(reply?.result) ? reply.result["protocolVersion"] : undefined;
    if (typeof revision !== "string" || !REVISION.test(revision)) return response;
    const headers: Record<string, string> = { "mcp-protocol-version": revision };
    const session = response.headers[SESSION];
    if (session !== undefined) {
      if (typeof session !== "string" || !SESSION_PATTERN.test(session)) return response;
      headers[SESSION] = session;
      this.#session = { url: request.url, headers: { ...request.headers, ...headers } };
    }
    this.#headers = headers;
    await this.#post(timed(), { jsonrpc: "2.0", method: "notifications/initialized" });
    return undefined;
  }

  async #send(
    request: OutboundRequest,
    method: string,
    params: Record<string, unknown>,
  ): Promise<Exchange> {
    const id = this.#nextId++;
    const extra = this.#isStateless ? modernHeaders(method, params) : {};
    const response = await this.#post(
      request,
      { jsonrpc: "2.0", id, method, params: this.#isStateless ? enveloped(params) : params },
      extra,
    );
    return { response, reply: findReply(response, id), isSent: true };
  }

  #post(request: OutboundRequest, message: object, extra: Record<string, string> = {}) {
    return this.#transport({
      ...request,
      method: "POST",
      headers: { ...request.headers, ...TYPES, ...this.#headers, ...extra },
      body: stringifyExact(message),
    });
  }
}

/** The target responded, but not with MCP. */
export const unusable = ({ response, isSent }: Exchange): OutboundError =>
  new OutboundError("unreachable", {
    detail: `The target does not respond like an MCP server (HTTP ${response.status})`,
    neverSent: !isSent,
  });

const enveloped = (params: Record<string, unknown>): Record<string, unknown> => ({
  ...params,
  _meta: {
    ...(isRecord(params["_meta"]) ? params["_meta"] : {}),
    "io.modelcontextprotocol/protocolVersion": WITHOUT_HANDSHAKE,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
  },
});

function modernHeaders(method: string, { name }: Record<string, unknown>): Record<string, string> {
  return { "mcp-method": method, ...(typeof name === "string" && { "mcp-name": inHeader(name) }) };
}

/** SEP-2243: a value that a header cannot contain is sent as base64. */
const inHeader = (text: string): string =>
  /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith("=?base64?")
    ? text
    : `=?base64?${Buffer.from(text).toString("base64")}?=`;

/** The response to this request, without other messages (notifications, server requests) sent with it. */
function findReply({ headers, body, truncated }: OutboundResponse, id: number): Reply | undefined {
  const text = utf8(body, truncated !== undefined);
  for (const json of isStream({ headers }) ? eventsOf(text) : [text]) {
    const read = parseForeignJson(json);
    if (!read.ok) continue;
    const at = [read.value].flat().findIndex((message) => isReplyTo(message, id));
    if (at < 0) continue;
    const reply = [parseExact(json)].flat()[at] as { result?: unknown; error?: unknown };
    return isRecord(reply.error) ? { error: reply.error } : { result: reply.result };
  }
  return undefined;
}

/** Empty if it is not UTF-8, as JSON must be: replacement characters would triple its length. */
function utf8(body: Buffer, isCut: boolean): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body, { stream: isCut });
  } catch {
    return "";
  }
}

export const isStream = ({ headers }: Pick<OutboundResponse, "headers">): boolean =>
  /^\s*text\/event-stream\b/i.test(String(headers["content-type"]));

const isReplyTo = (message: unknown, id: number): boolean =>
  isRecord(message) &&
  message["id"] === id &&
  (isRecord(message["error"]) || isRecord(message["result"]));

/** The data of each complete event. https://html.spec.whatwg.org/multipage/server-sent-events.html */
function* eventsOf(stream: string): Generator<string> {
  const text = stream.replace(/^\uFEFF/, "").replaceAll(/\r\n?/g, "\n");
  for (const event of text.split("\n\n")) {
    const lines = event.split("\n").filter((line) => line.startsWith("data:"));
    if (lines.length > 0) yield lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
  }
}
