// Goal: a process killed at any step loses no payment and makes none twice: after a restart, or by another replica that takes over, each is
// settled exactly once; also with Permit2, although no event contains the nonce.
import t, { type Test } from "tap";
import type { FaultPoint } from "../../server/plugins/settlement/context.ts";
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
import { approvePermit2, authorizePermit2 } from "../helpers/permit2.ts";
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
type Scheme = "exact" | "exact-permit2" | "upto";

async function world(t: Test, scheme: Scheme = "exact") {
  const chain = await withOwnAccounts(steady);
  const database = await testDatabase(t);
  const queued = await queuePayments(
    chain,
    database,
    scheme === "exact"
      ? undefined
      : async (payer, to) => {
          await approvePermit2(chain, [payer]);
          if (scheme === "exact-permit2") return authorizePermit2(chain, payer, { to });
          const facilitator = chain.relayer.address;
          const ceiling = { to, facilitator, amount: 5_000n, charged: 1_000n };
          return authorizePermit2(chain, payer, ceiling);
        },
  );
  const start = () =>
    startEngine(t, { databaseUrl: database.url, chain, timings: BRISK, ...DEPTHS });
  return { chain, database, queued, start };
}

async function killedThenStarted(t: Test, point: FaultPoint, scheme: Scheme): Promise<void> {
  const { chain, database, queued, start } = await world(t, scheme);
  await doomedReplica(chain, database.url, point);
  await endLeases(database);
  await expectAllPaidOnce(t, { node: await start(), chain, database, ...queued });
}

async function takenOver(t: Test, point: FaultPoint): Promise<void> {
  const { chain, database, queued, start } = await world(t);
  const dying = doomedReplica(chain, database.url, point);
  await leaseTaken(database);
  const node = await start();
  await dying;
  await endLeases(database);
  await expectAllPaidOnce(t, { node, chain, database, ...queued });
}

const options = { timeout: 90_000 };
for (const point of isFullTier ? FAULT_POINTS : EACH_STATE)
  t.test(`killed at "${point}", then started again`, options, (t) =>
    killedThenStarted(t, point, "exact"),
  );

for (const point of isFullTier ? FAULT_POINTS : []) {
  t.test(`the holder is killed at "${point}", another replica takes over`, options, (t) =>
    takenOver(t, point),
  );
  for (const scheme of ["exact-permit2", "upto"] as const)
    t.test(`${scheme}: killed at "${point}", then started again`, options, (t) =>
      killedThenStarted(t, point, scheme),
    );
}
