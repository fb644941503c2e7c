// Goal: a process killed at any step of a payment through a channel loses nothing: the same key pays once, another key goes on
// from what the seller has, and charges and ceiling end as the seller and the chain have them.
import { randomUUID } from "node:crypto";
import t, { type Test } from "tap";
import { ourFacilitator } from "./stock-sellers.ts";
import { testApp } from "../helpers/app.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { post, startReplica } from "../spending/replica.helper.ts";
import { channelSeller, type ChannelSeller } from "./channel-sellers.ts";
import { channelIn, channelOf, expectWholeLedger, onChain } from "./channel-facts.ts";
import { fetchAndDie, keyed, untilDead, type DoomedFetch } from "./doomed.ts";
import { market, PAYEE, type Market } from "./market.ts";

const ENV = { SETTLE_WAIT_MS: "5000", LOG_LEVEL: "silent", CONFIRMATIONS_31337: "1" };
const ALL_POINTS = ["reserved", "signed", "accepted", "submitted", "answered", "kept"];
const POINTS = isFullTier ? ALL_POINTS : ["reserved", "submitted", "answered"];
/** The seller has charged when the process dies. */
const CHARGED: ReadonlySet<string> = new Set(["answered", "kept"]);
const PRICE = 1_000n;
/** What the killed request's key answers after another key has paid. */
const LATE: Record<string, { status: number; body: Record<string, unknown> }> = {
  // Nothing was shown to the seller: it is paid now.
  reserved: { status: 200, body: { paid: true } },
  signed: { status: 200, body: { paid: true } },
  // The other key's payment had the same place in the channel: the seller can charge for one of them.
  accepted: { status: 502, body: { code: "settlement_failed" } },
  submitted: { status: 502, body: { code: "settlement_failed" } },
  // The seller had charged: its response was lost, or is stored.
  answered: { status: 502, body: { code: "paid_upstream_failed" } },
  kept: { status: 200, body: { paid: true } },
};

interface Doomed {
  seller: ChannelSeller;
  fetch: DoomedFetch;
}

/** Each seller has its own channel, so that a request that is held does not keep the others waiting. */
async function doomedAt(t: Test, made: Market, point: string, name: string): Promise<Doomed> {
  const facilitator = ourFacilitator(made.baseUrl);
  const seller = await channelSeller(t, { chain: made.chain, payTo: PAYEE, facilitator });
  made.config.fetchPrivateOrigins.push(seller.origin);
  return { seller, fetch: keyed(point, name, { url: `${seller.origin}/word` }) };
}

async function dead(made: Market): Promise<void> {
  await untilDead(made);
  await made.database.pool.query(
    "UPDATE channels SET busy_until = busy_until - interval '150 seconds' WHERE agent_id = $1",
    [made.agent.id],
  );
}

const again = (made: Market, { fetch }: Doomed) => made.fetch(fetch.body, fetch.headers);
const anew = (made: Market, { seller }: Pick<Doomed, "seller">) =>
  made.fetch({ url: `${seller.origin}/word` }, { "idempotency-key": randomUUID() });

/** What the seller charged is what our row says, and what it can collect. */
async function expectSame(t: Test, made: Market, { seller }: Doomed, charged: bigint) {
  const last = await anew(made, { seller });
  t.match(last, { status: 200 }, JSON.stringify(last.body));
  const { id } = channelIn(last.body);
  const channel = await channelOf(made, id);
  t.match(channel, { charged: charged + PRICE, ceiling: charged + PRICE, status: "open" });
  await seller.collect();
  t.match(await onChain(made, id), { claimed: charged + PRICE }, "the seller's memory");
}

const made = await market(t, {
  listen: true,
  env: ENV,
  agent: { dailyLimit: "5", channelHeld: "5", channelDelay: 86_400 },
});

for (const isFirst of isFullTier ? [true, false] : [true])
  t.test(isFirst ? "the first payment" : "a later payment", async (t) => {
    const doomed = new Map<string, Doomed>();
    const others = new Map<string, Doomed>();
    for (const point of POINTS) {
      doomed.set(point, await doomedAt(t, made, point, `${isFirst} ${point}`));
      others.set(point, await doomedAt(t, made, point, `${isFirst} ${point} other`));
    }
    const before = isFirst ? 0n : PRICE;
    const all = [...doomed.values(), ...others.values()];
    if (!isFirst)
      for (const one of all) t.match(await anew(made, one), { status: 200, body: { paid: true } });
    // Fewer than an agent may run at the same time.
    for (const some of [doomed, others])
      await fetchAndDie(
        t,
        made,
        [...some.values()].map(({ fetch }) => fetch),
        ENV,
      );

    await t.test("while the process may be alive, nobody takes over", async (t) => {
      for (const [point, one] of doomed)
        t.match(
          await again(made, one),
          point === "kept"
            ? { status: 200, headers: { "idempotent-replayed": "true" } }
            : { status: 409, body: { code: "idempotency_in_progress" } },
          point,
        );
      const [one] = others.values();
      const busy = await made.fetch({ url: `${one?.seller.origin}/word`, timeoutMs: 1_000 });
      t.match(busy, { status: 503, body: { code: "channel_busy" } }, busy.text);
    });
    await dead(made);

    for (const [point, one] of doomed)
      await t.test(`the same key, killed when ${point}`, async (t) => {
        const answer = await again(made, one);
        // Before that its response was not stored.
        if (point === "answered")
          t.match(
            answer,
            { status: 502, body: { code: "paid_upstream_failed", amountPaid: "0.001" } },
            JSON.stringify(answer.body),
          );
        else t.match(answer, { status: 200, body: { paid: true } }, JSON.stringify(answer.body));
        t.equal(one.seller.served, isFirst ? 1 : 2, "served once");
        const repeated = await again(made, one);
        t.equal(repeated.status, answer.status);
        t.equal(one.seller.served, isFirst ? 1 : 2, "and not again");
        await expectSame(t, made, one, before + PRICE);
      });

    for (const [point, one] of others)
      await t.test(`another key, killed when ${point}`, async (t) => {
        const answer = await anew(made, one);
        t.match(answer, { status: 200, body: { paid: true } }, JSON.stringify(answer.body));
        const wasCharged = CHARGED.has(point) ? PRICE : 0n;
        await expectSame(t, made, one, before + wasCharged + PRICE);
        const late = await again(made, one);
        t.match(late, LATE[point], late.text);
      });
    await expectWholeLedger(t, made);
  });

t.test("killed when its deposit was stored, and its voucher not", async (t) => {
  const { pool } = made.database;
  const one = await doomedAt(t, made, "", "between");
  // Between the two the process waits for this lock.
  const holder = await pool.connect();
  t.teardown(() => holder.release());
  await holder.query("SELECT pg_advisory_lock(42)");
  await pool.query(`
    CREATE FUNCTION held() RETURNS TRIGGER LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END; $$;
    CREATE TRIGGER held BEFORE UPDATE ON channels FOR EACH ROW EXECUTE FUNCTION held()`);
  const { url, child, ended } = await startReplica(t, made, {
    ...ENV,
    FETCH_PRIVATE_ORIGINS: made.config.fetchPrivateOrigins.join(","),
  });
  const headers = { ...made.agent.headers, ...one.fetch.headers };
  const cut = post(`${url}/api/agents/x402-fetch`, headers, one.fetch.body).catch(() => "cut");
  // Other work on channels, such as a deposit that becomes final, waits for the same lock.
  const waiting = `SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'advisory' AND l.classid = 0 AND l.objid = 42 AND NOT l.granted AND a.query LIKE '%purser_voucher_signed%'`;
  await until(async () => (await pool.query(waiting)).rows.length > 0, 20_000);
  child.kill("SIGKILL");
  await ended;
  t.equal(await cut, "cut");
  await pool.query(`SELECT pg_terminate_backend(pid) FROM (${waiting}) AS waiting`);
  await until(async () => (await pool.query(waiting)).rows.length === 0);
  await pool.query("DROP TRIGGER held ON channels");
  await holder.query("SELECT pg_advisory_unlock(42)");
  const { rows } = await pool.query(
    "SELECT kind, status FROM payments WHERE agent_id = $1 AND url LIKE $2 ORDER BY kind",
    [made.agent.id, `${one.seller.origin}/%`],
  );
  t.same(rows, [
    { kind: "deposit", status: "submitted" },
    { kind: "x402", status: "reserved" },
  ]);
  t.equal(one.seller.paidRequests, 0);
  await dead(made);
  t.match(await again(made, one), { status: 200, body: { paid: true } });
  t.equal(one.seller.served, 1);
  await expectSame(t, made, one, PRICE);
  await expectWholeLedger(t, made);
});

t.test("two replicas use one channel", async (t) => {
  const { database, chain, agent } = made;
  const two = await testApp(t, { database, chain, env: ENV });
  const one = await doomedAt(t, made, "", "");
  two.config.fetchPrivateOrigins.push(one.seller.origin);
  const answers = await Promise.all(
    Array.from({ length: 10 }, async (_, index) => {
      const { app } = index % 2 === 0 ? made : two;
      const answer = await app.inject({
        method: "POST",
        url: "/api/agents/x402-fetch",
        headers: { ...agent.headers, "idempotency-key": `n${index}` },
        payload: JSON.stringify({ url: `${one.seller.origin}/word` }),
      });
      return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
    }),
  );
  t.same(
    answers.map(({ status }) => status),
    answers.map(() => 200),
    JSON.stringify(answers.find(({ status }) => status !== 200)?.body),
  );
  t.equal(new Set(answers.map(({ body }) => channelIn(body).id)).size, 1);
  t.equal(one.seller.served, 10);
  await expectSame(t, made, one, 10n * PRICE);
  await expectWholeLedger(t, made);
});
