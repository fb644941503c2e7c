/**
 * What this cell reads from the others every few seconds: what payees owe there, and outcomes of payments whose payee has
 * its account here. Each cell keeps its own place in the others' news, and writes it together with them.
 */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyInstance } from "fastify";
import { afterStartup } from "../../infra/after-startup.ts";
import { registerGauges } from "../../infra/telemetry.ts";
import { News, NewsAsked } from "../../schemas/cells.ts";
import { assertForwarded, type Cell } from "../../core/cells.ts";
import {
  addCells,
  readAges,
  readFeesAgain,
  readNewsFor,
  placeIn,
  takeTurn,
  writeNews,
} from "./news-store.ts";

const PATH = "/api/cells/news";
const ANSWER_MS = 2_000;

interface OtherCells {
  readonly others: readonly Cell[];
  ask<T>(cell: Cell, path: string, body: unknown, budgetMs: number): Promise<T>;
}

export function exchangeNews(app: FastifyInstance, cells: OtherCells): void {
  const { pool, log } = app;
  const everyMs = app.config.timings.cellNewsMs;
  const ids = (): string[] => cells.others.map(({ id }) => id);

  const closing = new AbortController();
  const readFrom = async (cell: Cell): Promise<void> => {
    while (!closing.signal.aborted) {
      const asked = await placeIn(pool, cell.id);
      const news = await cells.ask<News>(cell, PATH, asked, ANSWER_MS);
      const isWritten = await writeNews(pool, cell.id, { asked, news });
      // Another replica has read on from the same place, and reads the rest.
      if (!isWritten || !news.isMore) return;
    }
  };
  const silentBefore = new Set<string>();
  const read = async (cell: Cell): Promise<void> => {
    try {
      if (!(await takeTurn(pool, cell.id, everyMs))) return;
      await readFrom(cell);
      if (silentBefore.delete(cell.id)) log.info({ cell: cell.id }, "a cell's news are read again");
    } catch (error) {
      // Once, not every two seconds. The metric says how long.
      if (!silentBefore.has(cell.id))
        log.warn({ err: error, cell: cell.id }, "a cell's news cannot be read");
      silentBefore.add(cell.id);
    }
  };

  /** One for each cell: none of them waits for another one that is slow, or has much to report. */
  const running = new Map<string, Promise<unknown>>();
  const readInTurn = async (cell: Cell): Promise<void> => {
    await read(cell);
    running.delete(cell.id);
  };
  const round = (): void => {
    for (const cell of cells.others)
      if (!running.has(cell.id)) running.set(cell.id, readInTurn(cell));
  };
  let timer: NodeJS.Timeout | undefined;
  app.addHook("onReady", () => addCells(pool, ids()));
  afterStartup(app, () => {
    timer = setInterval(round, everyMs);
  });
  app.addHook("preClose", async () => {
    closing.abort();
    clearInterval(timer);
    await Promise.all(running.values());
  });
  app.jobs.addTask("read-fees-of-cells", () => readFeesAgain(pool), { cron: "23 3 * * *" });

  registerGauges(app.metrics, {
    labelNames: ["cell"],
    rows: async () =>
      (await readAges(pool, ids())).map(({ cell, seconds }) => ({ labels: { cell }, seconds })),
    gauges: {
      purser_cells_news_seconds: [
        "How old the news are that this cell has of the other one: since the last answer, or since the oldest notification that it has not read",
        ({ seconds }) => seconds,
      ],
    },
  });
}

export const newsRoutes: FastifyPluginAsyncTypebox = async (app) => {
  app.post(
    PATH,
    {
      config: { auth: "cell" },
      logLevel: "warn",
      schema: {
        tags: ["cells"],
        operationId: "readNewsForCell",
        summary: "What payees owe here, and outcomes for payees without an account here",
        body: NewsAsked,
        response: { 200: News },
      },
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      return readNewsFor(app.pool, forward.from, body);
    },
  );
};
