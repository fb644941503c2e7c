// Two cells of one service on one chain, each with its own database.
import type { Test } from "tap";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { cellOfPayer, type Cell } from "../../server/core/cells.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { testChain, withOwnAccounts } from "../helpers/chain.ts";

export const SECRET = "two cells of one service, and a test";

export interface TwoCells {
  worlds: [TestApp, TestApp];
  /** Tests change it. */
  cells: Cell[];
  payerOf: (id: string) => Promise<PrivateKeyAccount>;
  /** While it runs, this one of the cells (the second one) cannot be reached. */
  whileDown: (act: () => Promise<void>, place?: number) => Promise<void>;
}

export async function twoCells(t: Test): Promise<TwoCells> {
  const chain = await testChain(t);
  // Filled while they start: each needs the other's port.
  const cells: Cell[] = [];
  const start = async (id: string): Promise<TestApp> =>
    testApp(t, {
      chain: id === "c1" ? chain : await withOwnAccounts(chain),
      listen: true,
      configure: (config) => {
        cells.push({
          id,
          url: `http://127.0.0.1:${config.port}`,
          fromSeconds: 0n,
          untilSeconds: 2n ** 256n,
        });
        config.cells = { self: id, cells, secret: SECRET };
      },
    });
  const worlds: [TestApp, TestApp] = [await start("c1"), await start("c2")];
  const payerOf = async (id: string) => {
    for (;;) {
      const payer = privateKeyToAccount(generatePrivateKey());
      if (cellOfPayer(cells, payer.address, 1n)?.id !== id) continue;
      await chain.mint(payer.address, 1_000_000n);
      return payer;
    }
  };
  const whileDown = async (act: () => Promise<void>, place = 1): Promise<void> => {
    const down = cells[place] as Cell;
    cells.splice(place, 1, { ...down, url: "http://127.0.0.1:9" });
    try {
      await act();
    } finally {
      cells.splice(place, 1, down);
    }
  };
  return { worlds, cells, payerOf, whileDown };
}
