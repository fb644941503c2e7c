// Goal: sellers that never respond do not delay the jobs that payments depend on, and honest sellers are still
// probed.
// Tier: full (follows real block times or socket timeouts).
import t, { type Test } from "tap";
import { ROUND } from "../../server/plugins/marketplace/round.ts";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { reaching, seller } from "./seller.ts";

const TARPITS = 120;
/** Much less than a round of hanging probes, and much more than a sweep. */
const ON_TIME_MS = ROUND.roundMs / 2;

/** One honest listing, and 120 at other hosts that accept connections and never respond. */
async function tarpits(t: Test, options: { listen?: boolean } = {}) {
  const honest = await seller(t);
  const tarpit = await seller(t);
  tarpit.answer = "hang";
  const service = await testApp(t, { ...reaching(honest, tarpit), ...options });
  const { app } = service;
  const owner = await signIn(service);
  const list = await app.inject({
    method: "POST",
    url: "/api/listings",
    headers: owner.headers,
    payload: JSON.stringify({ name: "Honest", url: `${honest.origin}/weather` }),
  });
  const { id } = list.json<{ id: string }>();
  // Each row has its own host, as subdomains of one domain would have.
  await app.pool.query(
    `INSERT INTO listings (id, source, name, url, method, host, pay_to, asset, network, price, price_ceiling,
                           status, requirement, next_probe_at)
     SELECT 'lst_tar' || n, 'bazaar', name, $2 || n, method, 'tar' || n || '.example', pay_to, asset, network,
            price, price_ceiling, 'active', requirement, now() - interval '1 hour'
       FROM listings, generate_series(1, $3::int) n WHERE id = $1`,
    [id, `${tarpit.origin}/`, TARPITS],
  );
  await app.pool.query("UPDATE listings SET next_probe_at = now() WHERE id = $1", [id]);
  return { ...service, honest, tarpit, id };
}

t.test("safety jobs run on time during rounds of hanging probes", async (t) => {
  const { app, tarpit } = await tarpits(t, { listen: true });
  // As cron would within two minutes: with a single queue, they would occupy both workers.
  // The queue creates its tables after the service begins to listen, and schedules jobs when they exist.
  const isPlanned = async (): Promise<boolean> => {
    const { rows } = await app.pool.query(
      "SELECT 1 FROM graphile_worker.jobs WHERE key = 'cron:listings-probe'",
    );
    return rows.length > 0;
  };
  await until(() => isPlanned().catch(() => false), 30_000);
  for (let times = 0; times < 2; times += 1) await app.jobs.enqueue("listings-probe", {});
  await until(() => tarpit.requests.length >= 4, 20_000);
  const isWaiting = async (name: string) => {
    // Reads the queue's tables for due jobs; jobs scheduled for later are not waiting.
    const { rows } = await app.pool.query(
      "SELECT 1 FROM graphile_worker.jobs WHERE task_identifier = $1 AND run_at <= now()",
      [name],
    );
    return rows.length > 0;
  };
  for (const sweep of ["sweep-unsigned", "forget-old-rows", "sweep-unsigned"]) {
    const startedAt = performance.now();
    await app.jobs.enqueue(sweep, {});
    await until(async () => !(await isWaiting(sweep)), 60_000);
    const tookMs = performance.now() - startedAt;
    t.ok(tookMs < ON_TIME_MS, `${sweep} took ${Math.round(tookMs)} ms`);
  }
  t.ok(await isWaiting("listings-probe"), "the probes were still hanging");
});

t.test("a round ends on time, and first probes the hosts that responded before", async (t) => {
  const { app, honest, tarpit, id } = await tarpits(t);
  await app.pool.query("UPDATE listings SET failures = 1 WHERE id LIKE 'lst_tar%'");
  honest.terms.amount = "4000";
  const startedAt = performance.now();
  const probed = await app.reprobeListings({ ...ROUND, roundMs: 4_000 });
  const tookMs = performance.now() - startedAt;
  // All of them would take minutes.
  t.ok(tookMs < 60_000, `${Math.round(tookMs)} ms`);
  t.ok(probed < 20, `${probed} of ${TARPITS + 1} probed in one round`);
  t.equal((await app.listings.get(id, undefined)).priceAtomic, 4000n, "the honest one was probed");
  const flags = await app.pool.query<{ flag: string | null; failures: number }>(
    "SELECT flag, failures FROM listings WHERE id LIKE 'lst_tar%' AND last_probed_at IS NOT NULL",
  );
  t.equal(flags.rowCount, tarpit.requests.length);
  t.ok(flags.rows.every(({ failures }) => failures === 2));
});

t.test("one probe per host at a time, and no more in this round after a timeout", async (t) => {
  const { app, tarpit } = await tarpits(t);
  await app.pool.query("UPDATE listings SET host = 'tar.example' WHERE id LIKE 'lst_tar%'");
  await app.reprobeListings({ ...ROUND, roundMs: 15_000 });
  t.equal(tarpit.requests.length, 1);
});

t.test("nominations have a separate queue", async (t) => {
  const { app, honest, tarpit, id } = await tarpits(t);
  await app.pool.query(
    "UPDATE listings SET next_probe_at = now() + interval '1 hour' WHERE id <> $1",
    [id],
  );
  await app.pool.query(
    `INSERT INTO nominations (id, url, host, pay_to, network, payer)
     SELECT 'nom_' || n, $1 || n, 'tar' || n || '.example', $2, 'eip155:5042002', $2
       FROM generate_series(1, $3::int) n`,
    [`${tarpit.origin}/`, testAccount(7).address.toLowerCase(), TARPITS],
  );
  honest.terms.amount = "3000";
  const nominated = app.probeNominations({ ...ROUND, roundMs: 1_000 });
  await app.reprobeListings();
  t.equal((await app.listings.get(id, undefined)).priceAtomic, 3000n);
  t.ok((await nominated) <= 2 * ROUND.inFlight);
});
