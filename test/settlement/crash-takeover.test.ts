// Goal: when a replica is killed at any step while it holds the lease, another replica takes over and each payment is settled exactly once.
// Tier: full (kills at every step of one more flow).
import t from "tap";
import { testChain, withOwnAccounts, type TestChain } from "../helpers/chain.ts";
import {
  DEPTHS,
  doomedReplica,
  endLeases,
  expectAllPaidOnce,
  FAULT_POINTS,
  leaseTaken,
  queuePayments,
} from "../helpers/engine-crash.ts";
import { BRISK, startEngine } from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";

let steady: TestChain;

t.before(async () => {
  steady = await testChain(t, { blockTimeSeconds: 0.2 });
});

t.jobs = 3;
for (const point of FAULT_POINTS) {
  t.test(`the holder is killed at "${point}"`, { timeout: 90_000 }, async (t) => {
    const chain = await withOwnAccounts(steady);
    const database = await testDatabase(t);
    const queued = await queuePayments(chain, database);
    const dying = doomedReplica(chain, database.url, point);
    await leaseTaken(database);
    const node = await startEngine(t, {
      databaseUrl: database.url,
      chain,
      timings: BRISK,
      ...DEPTHS,
    });
    await dying;
    await endLeases(database);
    await expectAllPaidOnce(t, { node, chain, database, ...queued });
  });
}
