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

declare module "fastify" {
  interface FastifyInstance {
    /** Reads what is new in the other cells, also just after another replica did. Returns those that do not answer. */
    readNewsOfCells(): Promise<string[]>;
  }
}

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

  const readFrom = async (cell: Cell): Promise<void> => {
    for (;;) {
      const asked = await placeIn(pool, cell.id);
      const news = await cells.ask<News>(cell, PATH, asked, ANSWER_MS);
      // Another replica may have read on from the same place.
      const isWritten = await writeNews(pool, cell.id, { asked, news });
      if (isWritten && !news.isMore) return;
    }
  };
  const silentBefore = new Set<string>();
  const readAll = async (isWanted: (cell: Cell) => Promise<boolean>): Promise<string[]> => {
    const silent = await Promise.all(
      cells.others.map(async (cell) => {
        try {
          if (!(await isWanted(cell))) return [];
          await readFrom(cell);
          if (silentBefore.delete(cell.id))
            log.info({ cell: cell.id }, "a cell's news are read again");
          return [];
        } catch (error) {
          // Once, not every two seconds. The metric says how long.
          if (!silentBefore.has(cell.id))
            log.warn({ err: error, cell: cell.id }, "a cell's news cannot be read");
          silentBefore.add(cell.id);
          return [cell.id];
        }
      }),
    );
    return silent.flat();
  };
  app.decorate("readNewsOfCells", () => readAll(async () => true));

  let running: Promise<unknown> | undefined;
  let timer: NodeJS.Timeout | undefined;
  const round = (): void => {
    running ??= readAll((cell) => takeTurn(pool, cell.id, everyMs)).finally(
      () => (running = undefined),
    );
  };
  app.addHook("onReady", () => addCells(pool, ids()));
  afterStartup(app, () => {
    timer = setInterval(round, everyMs);
  });
  app.addHook("preClose", async () => {
    clearInterval(timer);
    await running;
  });
  app.jobs.addTask("read-fees-of-cells", () => readFeesAgain(pool), { cron: "23 3 * * *" });

  registerGauges(app.metrics, {
    labelNames: ["cell"],
    rows: async () =>
      (await readAges(pool, ids())).map(({ cell, seconds }) => ({ labels: { cell }, seconds })),
    gauges: {
      purser_cells_news_seconds: [
        "How long ago this cell last read the news of the other one: fees, and notifications of merchants",
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
