/** One POST of an MCP client: whether it still listens, what it canceled, and what it has heard when its answer is out. */
import { createHash, randomUUID } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";
import { isRecord } from "../../core/foreign-text.ts";
import { ApiError } from "../../errors.ts";
import { whenSent } from "../http/index.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import type { Intermediary } from "../payments/joining.ts";

/** Ours is only a name that the client repeats: two clients of one agent both count their requests from 0. */
export const SESSION = "mcp-session-id";
/** Since this revision a closed stream is a cancellation; before it, a disconnection is none. */
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
    this.#cameAtMs = performance.now() - reply.elapsedTime;
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
    // Its body is parsed already, and never read from here.
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

  /** Once the answer has left, or can leave no more. */
  whenSent(run: () => void): void {
    whenSent(this.#reply, run);
  }

  /** What was paid for by calls without a key, once the answer of all is out. */
  told(): IdempotencyRef[] {
    return this.#made.flatMap(({ ref }) => ref ?? []);
  }
}

/** Of a client that repeats no session, no request can be told from another client's: those cannot be canceled. */
const callName = (session: string | undefined, id: string | number | undefined): string =>
  session === undefined || id === undefined
    ? `nobody's ${randomUUID()}`
    : createHash("sha256")
        .update(JSON.stringify([session, id]))
        .digest("hex");

const messages = (body: unknown): Record<string, unknown>[] => [body].flat().filter(isRecord);

export const isInitialize = (body: unknown): boolean =>
  messages(body).some(({ method }) => method === "initialize");

/** More than any client has under way at once; each is a transaction on the agent's row. */
const MOST_CANCELED = 50;

/** What a client waits for no longer (`notifications/cancelled`, revisions before 2026-07-28). */
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
