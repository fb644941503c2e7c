/**
 * Sends the response of a paid route. With a maximum it settles the charge first; a response whose payment is
 * not settled is withheld.
 */
import { Readable } from "node:stream";
import type { FastifyReply, FastifyRequest, onSendAsyncHookHandler } from "fastify";
import type { KeptResponse, PaidEarlier, Settled } from "./answers.ts";
import type { Metered } from "./meter.ts";
import { Expiring } from "./store.ts";

type PaidCharge = Settled | Metered | PaidEarlier;

interface PaidResponse {
  charge: PaidCharge;
  /** The names of the headers that were set before the handler ran. */
  before: ReadonlySet<string>;
}

/**
 * Responses whose payment may not be settled are kept for a repeat of the proof: a limited number, for a
 * limited time.
 */
const HELD_MS = 600_000;
const MAX_HELD = 100;
const MAX_HELD_BYTES = 1_000_000;

const CHARGE_NOT_SET = "the handler did not set the charge; nothing was charged or served";

export class Serving {
  readonly #paid = new WeakMap<FastifyRequest, PaidResponse>();
  readonly #held = new Expiring<KeptResponse>();
  readonly #onFault: (error: unknown, what: string) => void;

  constructor(onFault: (error: unknown, what: string) => void) {
    this.#onFault = onFault;
  }

  /** Sends the response that was kept for this proof, if there is one; else the handler runs. */
  async begin(
    request: FastifyRequest,
    reply: FastifyReply,
    charge: PaidCharge,
  ): Promise<FastifyReply | undefined> {
    this.#paid.set(request, { charge, before: new Set(Object.keys(reply.getHeaders())) });
    const lateFor = charge.kind === "settled" ? charge.lateFor : undefined;
    const held = lateFor === undefined ? undefined : this.#held.get(lateFor);
    if (lateFor !== undefined) this.#held.delete(lateFor);
    const kept = held ?? (charge.kind === "settled" ? charge.kept : undefined);
    return (
      kept &&
      reply.code(kept.status).headers(kept.headers).headers(charge.headers).send(kept.payload)
    );
  }

  readonly end: onSendAsyncHookHandler = async (request, reply, payload: unknown) => {
    const paid = this.#paid.get(request);
    if (!paid) return payload;
    const { charge } = paid;
    // Deleted at once, because an error response that replaces this one passes through this hook too.
    this.#paid.delete(request);
    if (charge.kind === "metered") return this.#settle(request, reply, payload, charge, paid);
    if (charge.kind === "settled" && reply.statusCode < 400) await this.#addReceipt(reply, charge);
    return payload;
  };

  async #settle(
    request: FastifyRequest,
    reply: FastifyReply,
    payload: unknown,
    charge: Metered,
    paid: PaidResponse,
  ): Promise<unknown> {
    if (reply.statusCode >= 400) {
      reply.headers(await charge.release());
      return payload;
    }
    const used = request.payment?.used ?? charge.unlessSet;
    if (used === undefined) {
      await charge.release();
      withdraw(reply, payload, paid);
      throw new Error(`${request.method} ${request.routeOptions.url}: ${CHARGE_NOT_SET}`);
    }
    let outcome;
    try {
      outcome = await charge.settle(used, responseOf(reply, payload));
    } catch (error) {
      this.#onFault(error, "the charge may not be settled: the response is withheld");
      this.#hold(charge.proof, reply, payload);
      withdraw(reply, payload, paid);
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
    withdraw(reply, payload, paid);
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
    const response = responseOf(reply, payload);
    if (!response || response.payload.length > MAX_HELD_BYTES || this.#held.size >= MAX_HELD)
      return;
    this.#held.set(proof, response, Date.now() + HELD_MS);
  }
}

/** Undefined for a stream, which can be read only once. */
const responseOf = (reply: FastifyReply, payload: unknown): KeptResponse | undefined =>
  typeof payload === "string" || Buffer.isBuffer(payload)
    ? { status: reply.statusCode, headers: reply.getHeaders(), payload }
    : undefined;

/** Nothing of an unpaid response is sent: its body and the headers that the handler set are discarded. */
function withdraw(reply: FastifyReply, made: unknown, { before }: PaidResponse): void {
  if (made instanceof Readable) made.destroy();
  if (made instanceof ReadableStream) void made.cancel().catch(() => undefined);
  for (const name of Object.keys(reply.getHeaders()))
    if (!before.has(name) && !SETTLEMENT_HEADERS.has(name)) reply.removeHeader(name);
}

const SETTLEMENT_HEADERS = new Set(["payment-response", "x-payment-response"]);
