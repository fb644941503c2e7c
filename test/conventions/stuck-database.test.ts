// Goal: a locked row blocks only its own agent, and silent connections are noticed within seconds; nothing is paid
// twice.
import { setTimeout as sleep } from "node:timers/promises";
import t from "tap";
import type { FastifyInstance } from "fastify";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { newId } from "../../server/core/ids.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { post, signedPayment } from "../facilitator/payments.ts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn, type NewTestAgent } from "../helpers/owner.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { tcpGate } from "../helpers/tcp-gate.ts";
import { until } from "../helpers/until.ts";
import { checkLedger, usdcOf } from "../spending/ledger.helper.ts";

const newAddress = () => privateKeyToAccount(generatePrivateKey()).address;

const spend = (app: FastifyInstance, agent: NewTestAgent, recipient: string, key = newId("key")) =>
  app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers: { ...agent.headers, "idempotency-key": key },
    payload: JSON.stringify({ recipient, amount: "0.01" }),
  });

t.test("another session holds a lock on one agent's row", async (t) => {
  const ctx = await testApp(t);
  const { app, chain, database } = ctx;
  const owner = await signIn(ctx);
  const payee = newAddress();
  const [stuck, other] = await Promise.all(
    [1, 2].map(async () => {
      const agent = await createAgent(ctx, owner, { allowlist: [payee] });
      await chain.mint(agent.walletAddress, 10_000_000n);
      return agent;
    }),
  );
  if (!stuck || !other) throw new Error("no agents");
  const payer = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 10_000_000n);
  const payment = () => signedPayment({ chain, payer, payTo: newAddress() });
  t.equal((await spend(app, stuck, payee)).statusCode, 200);

  const holder = await database.pool.connect();
  await holder.query("BEGIN");
  await holder.query("SELECT 1 FROM agents WHERE id = $1 FOR UPDATE", [stuck.id]);
  const held = Promise.all(Array.from({ length: 25 }, () => spend(app, stuck, payee)));
  const edit = asOwner(app, owner, {
    method: "PATCH",
    url: `/api/agents/${stuck.id}`,
    body: { name: "renamed" },
  });
  const waiting = async (): Promise<number> => {
    const { rows } = await database.pool.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    return rows[0]?.count ?? 0;
  };
  await until(async () => (await waiting()) > 0);
  for (let round = 0; round < 3; round += 1) {
    const [paid, session, verified, settled, self] = await Promise.all([
      spend(app, other, payee),
      signIn(ctx),
      payment().then((body) => post(app, "verify", body)),
      payment().then((body) => post(app, "settle", body)),
      app.inject({ url: "/api/agents/me", headers: stuck.headers }),
    ]);
    t.equal(paid.statusCode, 200, paid.body);
    t.ok(session.cookie, "signed in");
    t.match(verified, { isValid: true });
    t.match(settled, { success: true });
    t.equal(self.statusCode, 200, "the agent's data can be read");
    t.ok((await waiting()) <= 1, "at most one connection waits for the row");
  }
  const lanes = await database.pool.query<{ held: boolean }>(
    "SELECT lease_until > clock_timestamp() AS held FROM relayer_lanes",
  );
  t.ok(lanes.rows.length > 0 && lanes.rows.every(({ held }) => held), "lanes keep their leases");
  for (const answer of await held) {
    t.equal(answer.statusCode, 503, answer.body);
    t.match(answer.json(), { code: "agent_busy", retryable: true });
    t.equal(answer.headers["retry-after"], "2");
  }
  t.equal((await edit).statusCode, 503);
  await holder.query("ROLLBACK");
  holder.release();
  t.equal((await spend(app, stuck, payee)).statusCode, 200, "available again");
  const { rows } = await database.pool.query(
    "SELECT count(*)::int AS count FROM payments WHERE agent_id = $1 AND kind = 'spend'",
    [stuck.id],
  );
  t.same(rows, [{ count: 2 }], "the refused calls reserved nothing");
});

t.test("a query sent right after another one returned gets no response", async (t) => {
  const database = await testDatabase(t);
  const address = new URL(database.url);
  const gate = await tcpGate(t, { host: address.hostname, port: Number(address.port) });
  address.port = String(gate.port);
  address.hostname = "127.0.0.1";
  // One connection: a waiting query is sent as soon as it is free.
  const pool = createPool(address.href, {
    maxConnections: 1,
    timeouts: { statementMs: 2_000, lockMs: 0, idleInTransactionMs: 0 },
  });
  pool.on("error", () => undefined);
  t.teardown(() => pool.end());
  const first = pool.query("SELECT pg_sleep(0.2)");
  // It cannot return before the connection falls silent.
  const second = pool.query("SELECT pg_sleep(60)");
  await first;
  gate.silence(false);
  const outcome = await Promise.race([
    second.then(
      () => "answered",
      (error: Error) => error.message,
    ),
    sleep(30_000, "nothing", { ref: false }),
  ]);
  t.match(outcome, /the database did not respond/);
  t.match(
    (await pool.query("SELECT 1 AS one")).rows,
    [{ one: 1 }],
    "the next query gets a new connection",
  );
});

t.test("open connections fall silent while new ones work", async (t) => {
  const database = await testDatabase(t);
  const address = new URL(database.url);
  const gate = await tcpGate(t, { host: address.hostname, port: Number(address.port) });
  address.port = String(gate.port);
  address.hostname = "127.0.0.1";
  const ctx = await testApp(t, { database: { ...database, url: address.href } });
  const { app, chain } = ctx;
  const owner = await signIn(ctx);
  const payee = newAddress();
  const agent = await createAgent(ctx, owner, { allowlist: [payee] });
  await chain.mint(agent.walletAddress, 10_000_000n);
  t.equal((await spend(app, agent, payee)).statusCode, 200);

  // A spend from time to time, each repeated with its key until it has a final result.
  const over = new AbortController();
  t.teardown(() => over.abort());
  const paying: Promise<void>[] = [];
  const retried = new Set<string>();
  const pay = async (key: string): Promise<void> => {
    for (;;) {
      const answer = await spend(app, agent, payee, key);
      if (answer.statusCode === 200) return;
      if (![409, 503, 504].includes(answer.statusCode)) throw new Error(answer.body);
      retried.add(key);
      await sleep(200);
    }
  };
  const flow = (async () => {
    while (!over.signal.aborted) {
      paying.push(pay(newId("key")));
      await sleep(200);
    }
  })();
  // One spend waits for its agent's row in the middle of its statement when the connections fall silent.
  const holder = await database.pool.connect();
  await holder.query("BEGIN");
  await holder.query("SELECT 1 FROM agents WHERE id = $1 FOR UPDATE", [agent.id]);
  await until(async () => {
    const { rowCount } = await database.pool.query(
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    return (rowCount ?? 0) > 0;
  });
  gate.silence(false);
  await holder.query("ROLLBACK");
  holder.release();
  // The database executed it, but the service never gets the response.
  let lost: string[] = [];
  await until(async () => {
    const { rows } = await database.pool.query<{ id: string }>(
      "SELECT id FROM payments WHERE agent_id = $1 AND status = 'reserved'",
      [agent.id],
    );
    lost = rows.map(({ id }) => id);
    return lost.length > 0;
  });
  const answers = async (): Promise<boolean> => {
    const [nonce, self, ready] = await Promise.all([
      app.inject("/api/auth/nonce"),
      app.inject({ url: "/api/agents/me", headers: agent.headers }),
      app.inject("/api/ready"),
    ]);
    return [nonce, self, ready].every(({ statusCode }) => statusCode === 200);
  };
  // Within seconds; TCP itself would need a minute or more.
  await until(answers, 45_000);
  over.abort();
  await flow;
  // Makes the reservations old enough to count as abandoned.
  await database.pool.query(
    "UPDATE payments SET created_at = created_at - interval '10 minutes' WHERE id = ANY($1)",
    [lost],
  );
  await Promise.all(paying);
  t.ok(retried.size > 0, `${retried.size} of ${paying.length} spends met the silent connections`);
  t.equal(await usdcOf(ctx, payee), BigInt(paying.length + 1) * 10_000n, "each was paid, once");
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});
