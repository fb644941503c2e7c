// Goal: a settlement runs no more SQL statements than docs/explanation/speed-how.md states: an additional statement or transaction is noticed.
import type { PoolClient } from "pg";
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { Pool } from "../../server/infra/db/pool.ts";
import { testApp } from "../helpers/app.ts";
import { signedPayment } from "../facilitator/payments.ts";

const BURST = 100;

/** Statements that run periodically and not for each payment: leases, watching, gauges. */
const BY_THE_CLOCK =
  /^(lane-renew|lanes-orphaned|claims-lapsed|backlog|watch-|SELECT \* FROM purser_lane_acquire|SELECT kind, count|SELECT status, count|SELECT count)/;
const OF_PAYMENTS = /settlement|relayer_|purser_(lane|transaction|settle)|gas_accounts/;

/** Each statement by its name, and how often it may run for one payment and for a burst of a hundred. */
const ALLOWED: Record<string, { lone: number; burst: number }> = {
  "settlements-by-keys": { lone: 1, burst: 3 },
  "settlement-accept": { lone: 1, burst: 3 },
  "lane-persist": { lone: 1, burst: 4 },
  "attempt-answer": { lone: 1, burst: 4 },
  "transaction-final": { lone: 1, burst: 4 },
  "settlement-success": { lone: 1, burst: 5 },
};
/** How often these run depends on timing: polling for waiting callers, and claims of the queue. */
const TIMED = new Set(["settlements-ended", "settlements-claim"]);

/** Counts the statements about payments by name, and the transactions that contain them. */
function countStatements(...pools: Pool[]): Map<string, number> {
  const counts = new Map<string, number>();
  const count = (name: string): void => void counts.set(name, (counts.get(name) ?? 0) + 1);
  const known = new WeakSet<PoolClient>();
  const watch = (client: PoolClient): void => {
    if (known.has(client)) return;
    known.add(client);
    let isInTransaction = false;
    const query = client.query.bind(client) as (...args: unknown[]) => unknown;
    client.query = ((first: unknown, ...rest: unknown[]) => {
      const { name, text = String(first) } = first as { name?: string; text?: string };
      const label = (name ?? text.replaceAll(/\s+/g, " ")).trim().slice(0, 60);
      if (/^(BEGIN|COMMIT|ROLLBACK)$/.test(label)) isInTransaction = label === "BEGIN";
      else if (OF_PAYMENTS.test(text) && !BY_THE_CLOCK.test(label)) {
        if (isInTransaction) count("BEGIN and COMMIT");
        count(label);
      }
      return query(first, ...rest);
    }) as typeof client.query;
  };
  for (const pool of pools) pool.on("acquire", watch);
  return counts;
}

t.test("statements of one settlement, and of a hundred at once", async (t) => {
  const { app, chain } = await testApp(t);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const payers = Array.from({ length: BURST }, () => privateKeyToAccount(generatePrivateKey()));
  await chain.mint(
    payers.map(({ address }) => address),
    1_000_000n,
  );
  const make = () => Promise.all(payers.map((payer) => signedPayment({ chain, payer, payTo })));
  const [first, second, ...others] = await make();
  // A first settlement fills all caches.
  t.match(await app.facilitator.settle(first), { success: true });
  const counts = countStatements(app.pool, app.enginePool);

  const hold = (which: "lone" | "burst"): void => {
    const found = Object.fromEntries([...counts].filter(([name]) => !TIMED.has(name)));
    t.comment(which, Object.fromEntries(counts));
    const allowed = (name: string): number => ALLOWED[name]?.[which] ?? 0;
    t.same(
      Object.entries(found).filter(([name, count]) => count > allowed(name)),
      [],
      `${which}: no additional statement`,
    );
    for (const name of ["lane-persist", "transaction-final", "settlement-success"])
      t.ok(found[name], `${name} was counted`);
    counts.clear();
  };

  t.match(await app.facilitator.settle(second), { success: true });
  hold("lone");
  const answers = await Promise.all(
    [...others, ...(await make()).slice(0, 2)].map((body) => app.facilitator.settle(body)),
  );
  t.equal(answers.filter(({ success }) => success).length, BURST);
  hold("burst");
});
