// Our own paid route, and a payer with money.
import type { Test } from "tap";
import { testApp, type TestApp } from "../helpers/app.ts";
import type { TestAccount } from "../helpers/chain.ts";

export const PAID = "/api/arc-stats";

export interface Shop extends TestApp {
  payer: TestAccount;
  /** The balance of the payer's wallet, in atomic units. */
  held(): Promise<bigint>;
  settlements(): Promise<number>;
}

export async function shop(t: Test): Promise<Shop> {
  const made = await testApp(t, { listen: true, env: { SETTLE_WAIT_MS: "10000" } });
  const { chain, database } = made;
  const payer = chain.accounts[1];
  if (!payer) throw new Error("the test chain has no accounts");
  await chain.mint(payer.address, 1_000_000n);
  return {
    ...made,
    payer,
    held: () => chain.usdcOf(payer.address),
    async settlements() {
      const { rows } = await database.pool.query<{ count: string }>(
        "SELECT count(*)::text AS count FROM settlements",
      );
      return Number(rows[0]?.count);
    },
  };
}
