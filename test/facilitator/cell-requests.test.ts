// Goal: a cell that answers slowly, without an end, or with something else costs a bounded time and memory, and no payment
// is taken for settled or for not sent because of it.
import { createServer, type ServerResponse } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import t, { type Test } from "tap";
import type { Cell } from "../../server/core/cells.ts";
import { Cells, CellUnreachable } from "../../server/plugins/cells/index.ts";

const BUDGET_MS = 300;

/** A cell that answers as `answer` does, and the cell that asks it. */
async function asking(t: Test, answer: (response: ServerResponse) => void) {
  const server = createServer((request, response) => {
    request.resume();
    answer(response);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const cell: Cell = {
    id: "c2",
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    fromSeconds: 0n,
    untilSeconds: 2n ** 256n,
  };
  const cells = new Cells({
    self: "c1",
    cells: [{ ...cell, id: "c1", url: "http://127.0.0.1:9" }, cell],
    secret: "cells of one service, and a test",
    relayers: () => [],
    log: { warn: () => undefined },
  });
  t.teardown(async () => {
    server.closeAllConnections();
    server.close();
    await cells.close();
  });
  const ask = (signal?: AbortSignal, budgetMs = BUDGET_MS): Promise<unknown> =>
    cells.ask(cell, "/api/cells/settle", {}, budgetMs, signal);
  return { cells, ask };
}

/** One byte after the other, for ever. */
function drip(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "application/json" });
  const timer = setInterval(() => response.write(" "), 20);
  response.on("close", () => clearInterval(timer));
}

/** As fast as it can, for ever. */
function pour(response: ServerResponse, sent: { bytes: number }): void {
  response.writeHead(200, { "content-type": "application/json" });
  const chunk = Buffer.alloc(1 << 20, " ");
  const more = (): void => {
    let isFree = true;
    while (isFree && !response.destroyed) {
      sent.bytes += chunk.length;
      isFree = response.write(chunk);
    }
  };
  response.on("drain", more);
  more();
}

/** It may have settled: such an answer never says that it did not. */
const leavesOpen = async (t: Test, asked: Promise<unknown>): Promise<void> => {
  const error: unknown = await asked.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  t.ok(error instanceof Error && !(error instanceof CellUnreachable), String(error));
};

t.test("byte by byte: the whole answer has one budget", async (t) => {
  const { cells, ask } = await asking(t, drip);
  await leavesOpen(t, ask());
  t.match(await cells.askOthers("/api/cells/merchant", {}), { answers: [], missing: ["c2"] });
  t.equal(await cells.readPublic("c2", "/", BUDGET_MS), undefined);
  const sender = "0x00000000000000000000000000000000000000aa";
  const payment = { from: sender, validBefore: 1n } as const;
  t.equal(await cells.otherCellOf(payment, sender), undefined);
});

t.test("a list without an end is not kept in memory", async (t) => {
  const sent = { bytes: 0 };
  const { ask } = await asking(t, (response) => pour(response, sent));
  const asked = ask(undefined, 60_000);
  await t.rejects(asked, { code: "UND_ERR_RES_EXCEEDED_MAX_SIZE" });
  await leavesOpen(t, asked);
  t.ok(sent.bytes < 64 << 20, `${sent.bytes} bytes were sent`);
});

t.test(
  "no answer at all, half of one, a page of a proxy, or a caller that goes away",
  async (t) => {
    for (const answer of [
      () => undefined,
      (response: ServerResponse) => response.destroy(),
      (response: ServerResponse) => {
        response.writeHead(200, { "content-length": "100" });
        response.write('{"success":true');
        setTimeout(() => response.destroy(), 20);
      },
      (response: ServerResponse) => response.writeHead(502).end("<html>"),
    ])
      await leavesOpen(t, (await asking(t, answer)).ask());
    const { ask } = await asking(t, () => undefined);
    await leavesOpen(t, ask(AbortSignal.abort()));
  },
);
