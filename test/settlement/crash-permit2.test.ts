// Goal: a process killed at any step loses no Permit2 payment and makes none twice, although no event contains the nonce.
// Tier: full (kills at every step of one more flow).
import t from "tap";
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
import { approvePermit2, authorizePermit2 } from "../helpers/permit2.ts";
import { testDatabase } from "../helpers/postgres.ts";

let steady: TestChain;

t.before(async () => {
  steady = await testChain(t, { blockTimeSeconds: 0.2 });
});

t.jobs = 3;
const CASES = FAULT_POINTS.flatMap((point) => [
  { point, scheme: "exact" },
  { point, scheme: "upto" },
]);
for (const { point, scheme } of CASES) {
  t.test(`${scheme}: killed at "${point}", then started again`, { timeout: 90_000 }, async (t) => {
    const chain = await withOwnAccounts(steady);
    const database = await testDatabase(t);
    const queued = await queuePayments(chain, database, async (payer, to) => {
      await approvePermit2(chain, [payer]);
      if (scheme === "exact") return authorizePermit2(chain, payer, { to });
      const facilitator = chain.relayer.address;
      const ceiling = { to, facilitator, amount: 5_000n, charged: 1_000n };
      return authorizePermit2(chain, payer, ceiling);
    });
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
