/** The other cells of this service (core/cells.ts): which of them a payment belongs to, and what is sent to it. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import fp from "fastify-plugin";
import { Type, type Static } from "typebox";
import { Agent, request } from "undici";
import type { Address } from "viem";
import type { FastifyBaseLogger } from "fastify";
import { ApiError } from "../../errors.ts";
import {
  assertForwarded,
  cellOfPayer,
  hasSeveralCells,
  hashBody,
  readForward,
  signForward,
  type Cell,
} from "../../core/cells.ts";
import { AddressInput, AddressOutput } from "../../schemas/common.ts";
import type { Authorization } from "../../core/authorization.ts";
import { exchangeNews, newsRoutes } from "./news.ts";

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
/** How long what another cell says about itself is believed. */
const FACTS_MS = 60_000;
const FACTS_TIMEOUT_MS = 2_000;
const OWNER_PATH = "/api/cells/owner";

/** Nobody answered, and nothing was sent or nothing can have arrived. */
export class CellUnreachable extends Error {
  override name = "CellUnreachable";
}

const CellInfo = Type.Object({
  cell: Type.String(),
  publicUrl: Type.String(),
  signers: Type.Array(AddressOutput, { description: "The accounts that pay its gas" }),
});
type CellInfo = Static<typeof CellInfo>;
type CellFacts = Omit<CellInfo, "cell"> & { cell: Cell };

interface CellsDeps {
  self: string;
  cells: readonly Cell[];
  secret: string;
  /** Known once the engine has started. */
  relayers: () => readonly string[];
  log: Pick<FastifyBaseLogger, "warn">;
}

/** What the other cells returned, and which of them did not. */
export interface FromOthers<T> {
  answers: { cell: Cell; answer: T }[];
  missing: string[];
}

/** How long a page waits for another cell. */
const READ_MS = 2_000;
/** More than the longest list that one cell asks another for. */
const MOST_ANSWER_BYTES = 16 * 1024 * 1024;

export class Cells {
  readonly #deps: CellsDeps;
  readonly #agent = new Agent({
    connect: { timeout: 2_000 },
    maxResponseSize: MOST_ANSWER_BYTES,
  });
  #facts: { atMs: number; found: Promise<CellFacts[]> } | undefined;

  constructor(deps: CellsDeps) {
    this.#deps = deps;
  }

  get others(): readonly Cell[] {
    return this.#deps.cells.filter(({ id }) => id !== this.#deps.self);
  }

  /** The cell that decides about it; undefined for this one. `sender`: the only account that may send it. */
  async otherCellOf(
    { from, validBefore }: Pick<Authorization, "from" | "validBefore">,
    sender: Address | undefined,
  ): Promise<Cell | undefined> {
    const { cells, self } = this.#deps;
    if (sender !== undefined) return this.#cellOfSender(sender);
    const cell = cellOfPayer(cells, from, validBefore);
    return cell?.id === self ? undefined : cell;
  }

  /** Another cell may have been given the same transfer, signed once more. */
  mayHaveTwin(payer: string): boolean {
    return hasSeveralCells(this.#deps.cells, payer);
  }

  async #cellOfSender(address: string): Promise<Cell | undefined> {
    const isIts = (signer: string): boolean => signer.toLowerCase() === address.toLowerCase();
    if (this.#deps.relayers().some(isIts)) return undefined;
    return (await this.#factsOfOthers()).find(({ signers }) => signers.some(isIts))?.cell;
  }

  /** Those of the other cells that answer. */
  #factsOfOthers(): Promise<CellFacts[]> {
    const nowMs = performance.now();
    if (!this.#facts || nowMs - this.#facts.atMs > FACTS_MS)
      this.#facts = { atMs: nowMs, found: this.#readFacts() };
    return this.#facts.found;
  }

  async #readFacts(): Promise<CellFacts[]> {
    const answers = await Promise.allSettled(
      this.others.map(async (cell): Promise<CellFacts> => {
        const { body } = await request(`${cell.url}/api/cell`, {
          dispatcher: this.#agent,
          signal: AbortSignal.timeout(FACTS_TIMEOUT_MS),
        });
        return { ...((await body.json()) as CellInfo), cell };
      }),
    );
    // One that did not answer is asked again the next time.
    if (answers.some(({ status }) => status === "rejected")) this.#facts = undefined;
    return answers.flatMap((answer) => (answer.status === "fulfilled" ? [answer.value] : []));
  }

  /**
   * Throws unless a new owner with this address belongs here. An owner stays where its account is, whatever its address
   * says: the cells' databases are the directory. So all of them must answer before an account is made.
   */
  async assertNewOwnerIsOurs(address: string): Promise<void> {
    const { cells, self } = this.#deps;
    let homes;
    try {
      homes = await Promise.all(
        this.others.map(async (cell) => {
          const asked = this.ask<{ isHere: boolean }>(
            cell,
            OWNER_PATH,
            { address },
            FACTS_TIMEOUT_MS,
          );
          return (await asked).isHere ? cell : undefined;
        }),
      );
    } catch (error) {
      throw new ApiError("service_unavailable", {
        detail: "A new account can be made once all cells of this service can be reached.",
        cause: error,
      });
    }
    const nowSeconds = BigInt(Math.floor(Date.now() / 1000));
    const home =
      homes.find((cell) => cell !== undefined) ?? cellOfPayer(cells, address, nowSeconds);
    if (!home || home.id === self) return;
    const facts = (await this.#factsOfOthers()).find(({ cell }) => cell.id === home.id);
    throw new ApiError("other_cell", {
      detail: `This account belongs to the cell ${home.id}: sign in at ${facts?.publicUrl ?? home.id}.`,
      extra: { cell: home.id, ...(facts && { url: facts.publicUrl }) },
    });
  }

  /**
   * The other cell's answer, if all of it comes in time. Throws CellUnreachable if that cell cannot have received the
   * request; any other error leaves open whether it did.
   */
  async ask<T>(
    cell: Cell,
    path: string,
    body: unknown,
    budgetMs: number,
    signal?: AbortSignal,
  ): Promise<T> {
    // A cleared timer instead of AbortSignal.timeout, which would live on for each payment.
    const ended = new AbortController();
    const end = (): void => ended.abort();
    const late = setTimeout(end, budgetMs);
    signal?.addEventListener("abort", end, { once: true });
    if (signal?.aborted === true) end();
    try {
      return await this.#ask<T>(cell, path, body, ended.signal);
    } finally {
      clearTimeout(late);
      signal?.removeEventListener("abort", end);
    }
  }

  async #ask<T>(cell: Cell, path: string, body: unknown, signal: AbortSignal): Promise<T> {
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
        signal,
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

  /** Reads from all others at once. One that does not answer in time is named, and fails nothing. */
  async askOthers<T>(
    path: string,
    body: unknown,
    isAsked: (cell: Cell) => boolean = () => true,
  ): Promise<FromOthers<T>> {
    const cells = this.others.filter(isAsked);
    const asked = await Promise.allSettled(
      cells.map((cell) => this.ask<T>(cell, path, body, READ_MS)),
    );
    const found: FromOthers<T> = { answers: [], missing: [] };
    for (const [index, result] of asked.entries()) {
      const cell = cells[index] as Cell;
      if (result.status === "fulfilled") found.answers.push({ cell, answer: result.value });
      else {
        this.#deps.log.warn({ err: result.reason, cell: cell.id, path }, "a cell did not answer");
        found.missing.push(cell.id);
      }
    }
    return found;
  }

  /** What everybody may read there. Undefined if it does not answer. */
  async readPublic(
    id: string,
    path: string,
    timeoutMs: number,
  ): Promise<{ status: number; body: Buffer } | undefined> {
    const cell = this.others.find((other) => other.id === id);
    if (!cell) return undefined;
    try {
      const { statusCode, body } = await request(`${cell.url}${path}`, {
        dispatcher: this.#agent,
        signal: AbortSignal.timeout(timeoutMs),
      });
      return { status: statusCode, body: Buffer.from(await body.arrayBuffer()) };
    } catch (error) {
      this.#deps.log.warn({ err: error, cell: id, path }, "a cell did not answer");
      return undefined;
    }
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
      settings &&
      new Cells({
        ...settings,
        relayers: () => app.relayers.map(({ address }) => address),
        log: app.log,
      });
    app.decorate("cells", cells);
    if (cells) app.addHook("onClose", () => cells.close());
    if (settings) await app.register(routes, { self: settings.self });
    if (cells) {
      exchangeNews(app, cells);
      await app.register(newsRoutes);
    }
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

const routes: FastifyPluginAsyncTypebox<{ self: string }> = async (app, { self }) => {
  const tags = ["cells"];

  app.get(
    "/api/cell",
    {
      config: { auth: "public" },
      schema: {
        tags,
        operationId: "getCell",
        summary: "Which cell this is",
        response: { 200: CellInfo },
      },
    },
    async () => ({
      cell: self,
      publicUrl: app.config.publicUrl,
      signers: app.relayers.map(({ address }) => address),
    }),
  );

  app.post(
    OWNER_PATH,
    {
      config: { auth: "cell" },
      schema: {
        tags,
        operationId: "findOwnerForCell",
        summary: "Whether this address has its account here",
        body: Type.Object({ address: AddressInput }),
        response: { 200: Type.Object({ isHere: Type.Boolean() }) },
      },
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      const address = body.address.toLowerCase();
      // One that moved away is in the other cell, whose row says so.
      return { isHere: (await app.prisma.owner.count({ where: { address, movedAt: null } })) > 0 };
    },
  );
};
