// Three cells of one service on one chain, each with its own database.
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import type { Test } from "tap";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { addCells } from "../../server/plugins/cells/news-store.ts";
import { cellOfPayer, type Cell } from "../../server/core/cells.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { testChain, withOwnAccounts } from "../helpers/chain.ts";
import { until } from "../helpers/until.ts";
import { FEE_ADDRESS } from "../merchants/world.ts";

export const SECRET = "cells of one service, and a test";

export interface CellsWorld {
  worlds: [TestApp, TestApp, TestApp];
  /** Tests change it. */
  cells: Cell[];
  payerOf: (id: string) => Promise<PrivateKeyAccount>;
  /** While it runs, this one of the cells (the second one) cannot be reached. */
  whileDown: (act: () => Promise<void>, place?: number) => Promise<void>;
  /** The same, and something else answers in its place. */
  whileAnswering: (answer: RequestListener, act: () => Promise<void>) => Promise<void>;
}

/** Waits until a cell has begun and ended a round of reading the others' news, whether they answered or not. */
export async function newsAreRead({ app }: TestApp): Promise<void> {
  const { pool, config } = app;
  const reading = async (cell: string, after: Date): Promise<Date> => {
    let at = after;
    await until(async () => {
      const { rows } = await pool.query<{ at: Date }>(
        "SELECT next_read_at AS at FROM cell_news WHERE cell = $1",
        [cell],
      );
      at = rows[0]?.at ?? after;
      return at > after;
    });
    return at;
  };
  const readFrom = async (cell: string): Promise<void> => {
    // It takes the next turn only after the reading of the one before has ended.
    const running = await reading(cell, new Date(0));
    const begun = await reading(cell, running);
    await reading(cell, begun);
  };
  const others = config.cells?.cells.filter(({ id }) => id !== config.cells?.self) ?? [];
  await Promise.all(others.map(({ id }) => readFrom(id)));
}

export async function cellsWorld(t: Test): Promise<CellsWorld> {
  const chain = await testChain(t);
  // Filled while they start: each needs the other's port.
  const cells: Cell[] = [];
  const start = async (id: string): Promise<TestApp> =>
    testApp(t, {
      chain: id === "c1" ? chain : await withOwnAccounts(chain),
      listen: true,
      timings: { cellNewsMs: 100 },
      configure: (config) => {
        cells.push({
          id,
          url: `http://127.0.0.1:${config.port}`,
          fromSeconds: 0n,
          untilSeconds: 2n ** 256n,
        });
        config.cells = { self: id, cells, secret: SECRET };
        // Nothing is charged before a test says so.
        config.fees.payTo = FEE_ADDRESS;
      },
    });
  const worlds: CellsWorld["worlds"] = [await start("c1"), await start("c2"), await start("c3")];
  // A service knows the others when it starts; these learned of them later.
  for (const { app } of worlds)
    await addCells(
      app.pool,
      cells.map(({ id }) => id).filter((id) => id !== app.config.cells?.self),
    );
  const payerOf = async (id: string) => {
    for (;;) {
      const payer = privateKeyToAccount(generatePrivateKey());
      if (cellOfPayer(cells, payer.address, 1n)?.id !== id) continue;
      await chain.mint(payer.address, 1_000_000n);
      return payer;
    }
  };
  const whileAt = async (act: () => Promise<void>, place: number, url: string): Promise<void> => {
    const cell = cells[place] as Cell;
    cells.splice(place, 1, { ...cell, url });
    try {
      await act();
    } finally {
      cells.splice(place, 1, cell);
    }
  };
  const whileDown: CellsWorld["whileDown"] = (act, place = 1) =>
    whileAt(act, place, "http://127.0.0.1:9");
  const whileAnswering: CellsWorld["whileAnswering"] = async (answer, act) => {
    const server = createServer(answer).listen(0, "127.0.0.1");
    await once(server, "listening");
    try {
      await whileAt(act, 1, `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  };
  return { worlds, cells, payerOf, whileDown, whileAnswering };
}
