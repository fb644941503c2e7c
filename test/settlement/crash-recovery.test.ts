// Goal: a process killed at any step loses no payment and makes none twice; after a restart, or by another replica, each is settled exactly once.
// Runs alone
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import t from "tap";
import { acceptSettlement } from "../../server/adapters/stores/settlements.ts";
import type { FaultPoint } from "../../server/domain/settlement/context.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import { authorize, payers, randomAddress, request, startEngine } from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";

const POINTS: FaultPoint[] = [
  "claimed",
  "signed",
  "persisted",
  "broadcast",
  "mined",
  "before-final-write",
];
const PAYMENTS = 4;

async function queue(chain: TestChain, database: Awaited<ReturnType<typeof testDatabase>>) {
  const accounts = payers(PAYMENTS);
  await chain.mint(
    accounts.map((account) => account.address),
    1_000n,
  );
  const to = randomAddress();
  const requests = await Promise.all(
    accounts.map(async (payer) => request(await authorize(chain, payer, { to }))),
  );
  for (const wanted of requests) await acceptSettlement(database.pool, wanted);
  return { requests, to };
}

/** A replica that dies at the point; resolves when it is dead. */
async function doomed(chain: TestChain, databaseUrl: string, dieAt: FaultPoint): Promise<void> {
  const { chainId, usdc, rpcUrl, relayerPrivateKey } = chain;
  const child = fork(
    fileURLToPath(new URL("../helpers/engine-child.ts", import.meta.url)),
    [JSON.stringify({ databaseUrl, chain: { chainId, usdc, rpcUrl, relayerPrivateKey }, dieAt })],
    { execArgv: ["--import=tsx"], stdio: ["ignore", "inherit", "inherit", "ipc"] },
  );
  const timer = setTimeout(() => child.kill("SIGTERM"), 30_000);
  const [, signal] = (await once(child, "exit")) as [number | null, string | null];
  clearTimeout(timer);
  if (signal !== "SIGKILL")
    throw new Error(`the replica ended by ${signal} instead of dying at ${dieAt}`);
}

t.jobs = 3;
for (const point of POINTS) {
  for (const replicas of ["one", "two"] as const) {
    t.test(`killed at "${point}", ${replicas} replica(s)`, { timeout: 90_000 }, async (t) => {
      const chain = await testChain(t, { blockTimeSeconds: 0.5 });
      const database = await testDatabase(t);
      const { requests, to } = await queue(chain, database);
      const dying = doomed(chain, database.url, point);
      // With two, the survivor runs all the time; with one, it is the restart.
      if (replicas === "one") await dying;
      else await leaseTaken(database);
      const node = await startEngine(t, { databaseUrl: database.url, chain });
      await dying;
      const outcomes = await Promise.all(
        requests.map((wanted) => node.engine.settlement.wait(wanted.id, 25_000)),
      );
      t.same(
        outcomes.map((outcome) => outcome.status),
        requests.map(() => "settled"),
        JSON.stringify(node.logs),
      );
      t.equal(
        (
          await node.engine.chains
            .get(chain.chainId)
            ?.ctx.reads.readBalances(node.engine.chains.get(chain.chainId)!.ctx.rpc, chain.usdc, [
              to,
            ])
        )?.balances[0],
        1_000n * BigInt(PAYMENTS),
        "the payee got each payment once",
      );
      await expectLedgerEqualsChain(t, chain, database.pool);
    });
  }
}

async function leaseTaken({ pool }: Awaited<ReturnType<typeof testDatabase>>): Promise<void> {
  const deadlineMs = Date.now() + 20_000;
  while (Date.now() < deadlineMs) {
    const { rowCount } = await pool.query(
      "SELECT 1 FROM relayer_lanes WHERE lease_owner IS NOT NULL AND address <> '0x0000000000000000000000000000000000000000'",
    );
    if (rowCount) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error("no replica took the lease");
}
