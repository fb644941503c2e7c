// Goal: a process killed at any step loses no payment and makes none twice: after a restart each is settled exactly once.
import t from "tap";
import type { FaultPoint } from "../../server/plugins/settlement/context.ts";
import { testChain, withOwnAccounts, type TestChain } from "../helpers/chain.ts";
import {
  DEPTHS,
  doomedReplica,
  endLeases,
  expectAllPaidOnce,
  FAULT_POINTS,
  queuePayments,
} from "../helpers/engine-crash.ts";
import { BRISK, startEngine } from "../helpers/engine.ts";
import { isFullTier } from "../helpers/tier.ts";
import { testDatabase } from "../helpers/postgres.ts";

let steady: TestChain;

t.before(async () => {
  steady = await testChain(t, { blockTimeSeconds: 0.2 });
});

t.jobs = 3;
/** One step for each state of the rows; killing at the other steps leaves the rows in one of these states. */
const EACH_STATE: FaultPoint[] = [
  "signed",
  "persisted",
  "broadcast",
  "before-final-write",
  "reported",
];

for (const point of isFullTier ? FAULT_POINTS : EACH_STATE) {
  t.test(`killed at "${point}", then started again`, { timeout: 90_000 }, async (t) => {
    const chain = await withOwnAccounts(steady);
    const database = await testDatabase(t);
    const queued = await queuePayments(chain, database);
    await doomedReplica(chain, database.url, point);
    await endLeases(database);
    const node = await startEngine(t, {
      databaseUrl: database.url,
      chain,
      timings: BRISK,
      ...DEPTHS,
    });
    await expectAllPaidOnce(t, { node, chain, database, ...queued });
  });
}
