/** The other cells of this service (core/cells.ts): which of them a payment belongs to, and what is sent to it. */
import fp from "fastify-plugin";
import { Agent, request } from "undici";
import { ApiError } from "../../errors.ts";
import { cellOfPayer, hashBody, readForward, signForward, type Cell } from "../../core/cells.ts";
import type { Authorization } from "../../core/authorization.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Undefined where this deployment is the only one. */
    cells: Cells | undefined;
  }
  interface FastifyRequest {
    /** Set on routes with `auth: "cell"`. */
    forward: { from: string; bodyHash: string };
  }
}

export const FORWARD_HEADER = "purser-forward";
/** How long the relayers of the other cells are believed. */
const SIGNERS_MS = 60_000;
const SIGNERS_TIMEOUT_MS = 2_000;

/** Nobody answered, and nothing was sent or nothing can have arrived. */
export class CellUnreachable extends Error {
  override name = "CellUnreachable";
}

interface CellsDeps {
  self: string;
  cells: readonly Cell[];
  secret: string;
  relayers: readonly string[];
}

export class Cells {
  readonly #deps: CellsDeps;
  readonly #agent = new Agent({ connect: { timeout: 2_000 } });
  #signers: { atMs: number; byAddress: Promise<Map<string, Cell>> } | undefined;

  constructor(deps: CellsDeps) {
    this.#deps = deps;
  }

  get others(): readonly Cell[] {
    return this.#deps.cells.filter(({ id }) => id !== this.#deps.self);
  }

  /** The cell that decides about it; undefined for this one. */
  async otherCellOf({
    from,
    validBefore,
    terms,
  }: Pick<Authorization, "from" | "validBefore" | "terms">): Promise<Cell | undefined> {
    const { cells, self } = this.#deps;
    if (terms?.scheme === "upto") return this.#cellOfSigner(terms.facilitator);
    const cell = cellOfPayer(cells, from, validBefore);
    return cell?.id === self ? undefined : cell;
  }

  /** A payment that names the facilitator who may send it belongs to the cell with that account. */
  async #cellOfSigner(address: string): Promise<Cell | undefined> {
    const named = address.toLowerCase();
    if (this.#deps.relayers.some((own) => own.toLowerCase() === named)) return undefined;
    const nowMs = performance.now();
    if (!this.#signers || nowMs - this.#signers.atMs > SIGNERS_MS)
      this.#signers = { atMs: nowMs, byAddress: this.#readSigners() };
    return (await this.#signers.byAddress).get(named);
  }

  async #readSigners(): Promise<Map<string, Cell>> {
    const answers = await Promise.allSettled(
      this.others.map(async (cell) => {
        const { body } = await request(`${cell.url}/api/x402/supported`, {
          dispatcher: this.#agent,
          headersTimeout: SIGNERS_TIMEOUT_MS,
          bodyTimeout: SIGNERS_TIMEOUT_MS,
        });
        const { signers } = (await body.json()) as { signers: Record<string, string[]> };
        return Object.values(signers)
          .flat()
          .map((address): [string, Cell] => [address.toLowerCase(), cell]);
      }),
    );
    // One that could not be read is asked again for the next payment.
    if (answers.some(({ status }) => status === "rejected")) this.#signers = undefined;
    return new Map(
      answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : [])),
    );
  }

  /**
   * The other cell's answer. Throws CellUnreachable if it cannot have received the request; any other error leaves
   * open whether it did.
   */
  async ask<T>(cell: Cell, path: string, body: unknown, budgetMs: number): Promise<T> {
    const { secret, self } = this.#deps;
    const sentAtSeconds = Math.floor(Date.now() / 1000);
    const bodyHash = hashBody(body);
    const forward = { from: self, to: cell.id, sentAtSeconds, path, bodyHash };
    let response;
    try {
      response = await request(`${cell.url}${path}`, {
        method: "POST",
        dispatcher: this.#agent,
        headers: {
          "content-type": "application/json",
          [FORWARD_HEADER]: signForward(secret, forward),
        },
        body: JSON.stringify(body),
        headersTimeout: budgetMs,
        bodyTimeout: budgetMs,
      });
    } catch (error) {
      throw wasNotSent(error) ? new CellUnreachable(cell.id, { cause: error }) : error;
    }
    const { statusCode } = response;
    const answer = (await response.body.json()) as T;
    if (statusCode === 200) return answer;
    if (statusCode === 429) throw new ApiError("rate_limited");
    // A refusal before the payment was read. A fault (5xx) says nothing about what was done.
    if (statusCode < 500) throw new CellUnreachable(`${cell.id} refused it with ${statusCode}`);
    throw new Error(`${cell.id} answered ${statusCode}`);
  }

  readForward(header: unknown, path: string) {
    const { secret, self } = this.#deps;
    const nowSeconds = Math.floor(Date.now() / 1000);
    return readForward(header, { to: self, path }, { secret, nowSeconds });
  }

  close(): Promise<void> {
    return this.#agent.close();
  }
}

const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EHOSTUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);
const wasNotSent = (error: unknown): boolean =>
  error instanceof Error && NOT_SENT.has((error as NodeJS.ErrnoException).code ?? "");

export default fp(
  async (app) => {
    const { cells: settings } = app.config;
    app.decorateRequest("forward", null as unknown as { from: string; bodyHash: string });
    const cells =
      settings && new Cells({ ...settings, relayers: app.relayers.map(({ address }) => address) });
    app.decorate("cells", cells);
    if (cells) app.addHook("onClose", () => cells.close());
    app.authenticators.set("cell", (incoming) => {
      const { url = "" } = incoming.routeOptions;
      const forward = cells?.readForward(incoming.headers[FORWARD_HEADER], url);
      if (!forward) throw new ApiError("not_found");
      incoming.forward = forward;
      // The cell where it was posted has counted it for its address.
      incoming.caller = { kind: "cell", id: forward.from };
      return undefined;
    });
  },
  { name: "cells" },
);

/** Throws unless the body is the one that the other cell signed. */
export function assertForwarded(forward: { bodyHash: string }, body: unknown): void {
  if (hashBody(body) !== forward.bodyHash) throw new ApiError("not_found");
}
