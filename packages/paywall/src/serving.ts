/** The way of a paid answer: of a maximum, it is settled first, and what is not settled is not sent. */
import { Readable } from "node:stream";
import type { FastifyReply, FastifyRequest, onSendAsyncHookHandler } from "fastify";
import type { LetIn, Settled } from "./charge.ts";
import type { Metered } from "./meter.ts";
import { Expiring } from "./store.ts";

type Paid = Settled | Metered | LetIn;

interface Begun {
  charge: Paid;
  /** The names of the headers that the answer had before the handler ran. */
  before: ReadonlySet<string>;
}

interface HeldAnswer {
  status: number;
  headers: Record<string, number | string | string[] | undefined>;
  payload: string | Buffer;
}

/** Answers whose payment is not known to be settled wait here for their proof to be shown again; a few, and not long. */
const HELD_MS = 600_000;
const MAX_HELD = 100;
const MAX_HELD_BYTES = 1_000_000;

const NEVER_SAID = "the handler did not set the charge; nothing was charged or served";

export class Serving {
  readonly #paid = new WeakMap<FastifyRequest, Begun>();
  readonly #held = new Expiring<HeldAnswer>();
  readonly #onFault: (error: unknown, what: string) => void;

  constructor(onFault: (error: unknown, what: string) => void) {
    this.#onFault = onFault;
  }

  /** Sends the answer that waited for this proof, if there is one; else the handler makes it. */
  async begin(
    request: FastifyRequest,
    reply: FastifyReply,
    charge: Paid,
  ): Promise<FastifyReply | undefined> {
    this.#paid.set(request, { charge, before: new Set(Object.keys(reply.getHeaders())) });
    const lateFor = charge.kind === "settled" ? charge.lateFor : undefined;
    const held = lateFor === undefined ? undefined : this.#held.get(lateFor);
    if (lateFor === undefined || !held) return undefined;
    this.#held.delete(lateFor);
    return reply.code(held.status).headers(held.headers).headers(charge.headers).send(held.payload);
  }

  readonly end: onSendAsyncHookHandler = async (request, reply, payload: unknown) => {
    const begun = this.#paid.get(request);
    if (!begun) return payload;
    const { charge } = begun;
    // Once: an answer that replaces this one passes here too.
    this.#paid.delete(request);
    if (charge.kind === "metered") return this.#settle(request, reply, payload, charge, begun);
    if (charge.kind === "settled" && reply.statusCode < 400) await this.#addReceipt(reply, charge);
    return payload;
  };

  async #settle(
    request: FastifyRequest,
    reply: FastifyReply,
    payload: unknown,
    charge: Metered,
    begun: Begun,
  ): Promise<unknown> {
    if (reply.statusCode >= 400) {
      charge.release();
      return payload;
    }
    const used = request.payment?.used;
    if (used === undefined) {
      charge.release();
      withdraw(reply, payload, begun);
      throw new Error(`${request.method} ${request.routeOptions.url}: ${NEVER_SAID}`);
    }
    let outcome;
    try {
      outcome = await charge.settle(used);
    } catch (error) {
      this.#onFault(error, "the charge may not be settled: the response is withheld");
      this.#hold(charge.proof, reply, payload);
      withdraw(reply, payload, begun);
      throw error;
    }
    reply.headers(outcome.headers);
    if (outcome.kind === "settled") {
      await this.#addReceipt(reply, outcome);
      return payload;
    }
    const { errorReason } = outcome.response;
    this.#onFault(new Error(errorReason), "the charge is not settled: the response is withheld");
    if (errorReason === "settlement_pending") this.#hold(charge.proof, reply, payload);
    withdraw(reply, payload, begun);
    reply.code(402).type("application/json; charset=utf-8");
    return JSON.stringify(outcome.body);
  }

  async #addReceipt(reply: FastifyReply, charge: Settled): Promise<void> {
    try {
      const { headers } = await charge.delivered();
      reply.headers(headers);
    } catch (error) {
      this.#onFault(error, "signing a receipt");
    }
  }

  #hold(proof: string, reply: FastifyReply, payload: unknown): void {
    const isText = typeof payload === "string" || Buffer.isBuffer(payload);
    if (!isText || payload.length > MAX_HELD_BYTES || this.#held.size >= MAX_HELD) return;
    const answer = { status: reply.statusCode, headers: reply.getHeaders(), payload };
    this.#held.set(proof, answer, Date.now() + HELD_MS);
  }
}

/** Nothing of an answer that is not paid goes out, whatever header it was in. */
function withdraw(reply: FastifyReply, made: unknown, { before }: Begun): void {
  if (made instanceof Readable) made.destroy();
  if (made instanceof ReadableStream) void made.cancel().catch(() => undefined);
  for (const name of Object.keys(reply.getHeaders()))
    if (!before.has(name) && !TOLD.has(name)) reply.removeHeader(name);
}

const TOLD = new Set(["payment-response", "x-payment-response"]);
