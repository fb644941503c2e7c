/**
 * One POST of an MCP client: whether it is still connected, what it canceled, and which paid results its response
 * delivered.
 */
import { createHash, randomUUID } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";
import { isRecord } from "../../core/foreign-text.ts";
import { ApiError } from "../../errors.ts";
import { whenSent } from "../http/index.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import { arrivalMs, type Intermediary } from "../payments/lost-responses.ts";

/** A name that the client only repeats: two clients of one agent both number their requests from 0. */
export const SESSION = "mcp-session-id";
/** From this revision on, a closed stream is a cancellation; before it, it is not. */
const CLOSING_CANCELS = /^20(?:2[6-9]|[3-9]\d)-/;

export class McpRequest {
  readonly request: Request;
  readonly session: string | undefined;
  readonly #gone: AbortSignal;
  readonly #cameAtMs: number;
  readonly #closingCancels: boolean;
  readonly #reply: FastifyReply;
  readonly #made: Intermediary[] = [];

  constructor({ headers, protocol, host, url }: FastifyRequest, reply: FastifyReply) {
    this.#cameAtMs = arrivalMs(reply, () => performance.now());
    this.#reply = reply;
    const gone = new AbortController();
    this.#gone = gone.signal;
    let isOut = false;
    reply.raw.once("finish", () => (isOut = true));
    reply.raw.once("close", () => {
      if (!isOut) gone.abort();
    });
    const sent = new Headers();
    for (const [name, value] of Object.entries(headers))
      if (value !== undefined && name !== "content-length") sent.set(name, String(value));
    // The body is already parsed, and not read from this object.
    this.request = new Request(`${protocol}://${host}${url}`, {
      method: "POST",
      headers: sent,
      signal: gone.signal,
    });
    const session = headers[SESSION];
    this.session = typeof session === "string" ? session : undefined;
    this.#closingCancels = CLOSING_CANCELS.test(String(headers["mcp-protocol-version"]));
  }

  intermediary(id: string | number | undefined): Intermediary {
    const isGone = (): boolean => this.#gone.aborted;
    const made: Intermediary = {
      call: callName(this.session, id),
      cameAtMs: this.#cameAtMs,
      isGone,
      isCanceled: () => this.#closingCancels && isGone(),
      whenSent: (run) => this.whenSent(run),
    };
    this.#made.push(made);
    return made;
  }

  /** Runs after the response was sent, or can no longer be sent. */
  whenSent(run: () => void): void {
    whenSent(this.#reply, run);
  }

  /** The paid results of calls without a key, to be marked as delivered once the whole response was sent. */
  delivered(): IdempotencyRef[] {
    return this.#made.flatMap(({ ref }) => ref ?? []);
  }
}

/** Without a session, a request cannot be distinguished from another client's, so it cannot be canceled. */
const callName = (session: string | undefined, id: string | number | undefined): string =>
  session === undefined || id === undefined
    ? `nobody's ${randomUUID()}`
    : createHash("sha256")
        .update(JSON.stringify([session, id]))
        .digest("hex");

const messages = (body: unknown): Record<string, unknown>[] => [body].flat().filter(isRecord);

export const isInitialize = (body: unknown): boolean =>
  messages(body).some(({ method }) => method === "initialize");

/** More than any client has in progress at once; each is a transaction on the agent's row. */
const MOST_CANCELED = 50;

/** Calls that the client canceled (`notifications/cancelled`, revisions before 2026-07-28). */
export function canceledCalls(body: unknown, session: string | undefined): Set<string> {
  if (session === undefined) return new Set();
  const calls = messages(body).flatMap(({ method, params }) => {
    if (method !== "notifications/cancelled" || !isRecord(params)) return [];
    const id = params["requestId"];
    return typeof id === "string" || typeof id === "number" ? [callName(session, id)] : [];
  });
  if (calls.length > MOST_CANCELED)
    throw new ApiError("bad_request", {
      detail: `One request can cancel at most ${MOST_CANCELED} calls. Nothing was cancelled.`,
    });
  return new Set(calls);
}
