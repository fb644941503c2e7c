// Goal: one Idempotency-Key is one payment, and a repeat always returns its true result.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn, type NewTestAgent } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { reserveUnsigned, statusesOf, usdcOf } from "./ledger.helper.ts";

const usdc = 1_000_000n;
const freshPayee = () => privateKeyToAccount(generatePrivateKey()).address;

t.test("while outcomes arrive in time", async (t) => {
  const ctx = await testApp(t);
  const { app, chain, database } = ctx;
  const owner = await signIn(ctx);
  const payee = freshPayee();
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee] });
  await chain.mint(agent.walletAddress, 20n * usdc);
  const spend = (
    key: string | undefined,
    body: Record<string, unknown>,
    from: NewTestAgent = agent,
  ) =>
    app.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers: { ...from.headers, ...(key === undefined ? {} : { "idempotency-key": key }) },
      payload: JSON.stringify(body),
    });
  const one = { recipient: payee, amount: "1" };

  await t.test("the same key and body replays the stored response", async (t) => {
    const first = await spend("key-1", one);
    t.equal(first.statusCode, 200, first.body);
    t.notOk(first.headers["idempotent-replayed"]);
    const again = await spend("key-1", { amount: "1", recipient: payee });
    t.equal(again.statusCode, 200);
    t.equal(again.headers["idempotent-replayed"], "true");
    t.same(again.json(), first.json(), "also with its fields in another order");
    t.equal(await usdcOf(ctx, payee), usdc);
  });

  await t.test("another body is refused", async (t) => {
    const answer = await spend("key-1", { ...one, amount: "2" });
    t.equal(answer.statusCode, 422);
    t.equal(answer.json<{ code: string }>().code, "idempotency_key_reused");
  });

  await t.test("keys are 1 to 255 printable characters", async (t) => {
    for (const key of ["", " ", "a".repeat(256), "ü", "a\tb"]) {
      const answer = await spend(key, one);
      t.equal(answer.statusCode, 400, JSON.stringify(key));
      t.equal(answer.json<{ code: string }>().code, "idempotency_key_invalid");
    }
    t.equal((await spend("z".repeat(255), one)).statusCode, 200);
  });

  await t.test("a denial is not stored: the key may succeed later", async (t) => {
    const late = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [] });
    await chain.mint(late.walletAddress, 5n * usdc);
    t.equal((await spend("key-2", one, late)).statusCode, 403);
    await asOwner(app, owner, {
      method: "PUT",
      url: `/api/agents/${late.id}/allowlist`,
      body: { allowlist: [payee] },
    });
    t.equal((await spend("key-2", one, late)).statusCode, 200);
    t.equal((await spend("key-2", one, late)).headers["idempotent-replayed"], "true");
    t.same(await statusesOf(ctx, late.id), { blocked: 1, settled: 1 });
  });

  await t.test("keys belong to one agent", async (t) => {
    const other = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee] });
    await chain.mint(other.walletAddress, 5n * usdc);
    const answer = await spend("key-1", { ...one, amount: "2" }, other);
    t.equal(answer.statusCode, 200);
    t.notOk(answer.headers["idempotent-replayed"]);
  });

  await t.test("twenty at once with one key pay once", async (t) => {
    const before = await usdcOf(ctx, payee);
    const answers = await Promise.all(Array.from({ length: 20 }, () => spend("key-3", one)));
    for (const answer of answers)
      t.ok(
        answer.statusCode === 200 ||
          answer.json<{ code: string }>().code === "idempotency_in_progress",
        answer.body,
      );
    const fresh = answers.filter(
      (answer) => answer.statusCode === 200 && !answer.headers["idempotent-replayed"],
    );
    t.equal(fresh.length, 1);
    t.equal(await usdcOf(ctx, payee), before + usdc);
  });

  await t.test("a stored response is replayed while the chain is down", async (t) => {
    await chain.stop();
    const again = await spend("key-1", one);
    await chain.start();
    t.equal(again.statusCode, 200, again.body);
    t.equal(again.headers["idempotent-replayed"], "true");
  });

  await t.test("a process that died before signing leaves the key usable", async (t) => {
    // A reservation such as that process leaves behind.
    const ghost = await reserve("key-4");
    if (ghost.kind !== "reserved") throw new Error(ghost.kind);
    t.equal((await spend("key-4", one)).statusCode, 409, "at first it may still be running");
    await database.pool.query(
      "UPDATE payments SET created_at = created_at - interval '2 minutes' WHERE id = $1",
      [ghost.paymentId],
    );
    const answer = await spend("key-4", one);
    t.equal(answer.statusCode, 200, answer.body);
    t.not(answer.json<{ paymentId: string }>().paymentId, ghost.paymentId);
    const { rows } = await database.pool.query("SELECT status FROM payments WHERE id = $1", [
      ghost.paymentId,
    ]);
    t.same(rows, [{ status: "voided" }]);
  });

  await t.test("a key that another call takes before the reservation", async (t) => {
    const { subjectId, route, key, bodyHash } = await refOf("key-5");
    // A fetch inserts its key like this before it sends its first request: without a lock on the agent's row.
    const other = await database.pool.connect();
    t.teardown(() => other.release());
    await other.query("BEGIN");
    await other.query(
      "INSERT INTO idempotency_keys (subject_id, route, key, body_hash) VALUES ($1, $2, $3, $4)",
      [subjectId, route, key, Buffer.from(bodyHash)],
    );
    const late = reserve(key);
    await until(async () => {
      const { rows } = await database.pool.query(
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%purser_reserve%'",
      );
      return rows.length > 0;
    });
    await other.query("COMMIT");
    t.match(
      await late,
      { kind: "in_progress", paymentId: null },
      "the key belongs to the other call",
    );
    const { rows } = await database.pool.query(
      "SELECT count(*)::int AS count FROM payments WHERE agent_id = $1 AND status = 'reserved'",
      [agent.id],
    );
    t.same(rows, [{ count: 0 }], "and nothing is reserved for it");
  });

  async function reserve(key: string) {
    const idempotency = await refOf(key);
    return reserveUnsigned(ctx, agent, { to: payee, amountAtomic: usdc, idempotency });
  }

  async function refOf(key: string) {
    const { hashBody } = await import("../../server/plugins/guardrails/types.ts");
    const route = "POST /api/agents/spend";
    return { subjectId: agent.id, route, key, bodyHash: hashBody(route, one) };
  }
});

t.test("a call that has not reserved when its client leaves reserves nothing", async (t) => {
  const ctx = await testApp(t, { listen: true });
  const { app, baseUrl, chain } = ctx;
  const payee = freshPayee();
  const agent = await createAgent(ctx, await signIn(ctx), {
    dailyLimit: "10",
    allowlist: [payee],
  });
  await chain.mint(agent.walletAddress, 20n * usdc);
  t.teardown(() => app.server.closeAllConnections());
  const send = (key: string | undefined, signal?: AbortSignal) =>
    fetch(`${baseUrl}/api/agents/spend`, {
      method: "POST",
      headers: { ...agent.headers, ...(key === undefined ? {} : { "idempotency-key": key }) },
      body: JSON.stringify({ recipient: payee, amount: "1" }),
      signal: signal ?? null,
    });
  for (const key of ["late", undefined]) {
    const before = await statusesOf(ctx, agent.id);
    const ran = app.spend.run.bind(app.spend);
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    const late = new Promise<{ isGone: () => boolean; ended: Promise<unknown> }>((resolve) => {
      app.spend.run = (request) => {
        const ended = held.then(() => ran(request));
        resolve({ isGone: () => request.idempotency?.isGone?.() === true, ended });
        return ended;
      };
    });
    const client = new AbortController();
    const left = t.rejects(send(key, client.signal), { name: "AbortError" });
    const { isGone, ended } = await late;
    const refused = t.rejects(ended, { code: "call_canceled" }, "nobody waits for it");
    client.abort();
    await left;
    await until(async () => isGone());
    release();
    await refused;
    app.spend.run = ran;
    t.same(await statusesOf(ctx, agent.id), before, "nothing was reserved");
    const again = await send(key);
    t.equal(again.status, 200);
    t.equal(again.headers.get("idempotent-replayed"), null, "the repeat pays itself");
    t.equal(await again.json().then(({ success }) => success), true);
  }
  t.same(await statusesOf(ctx, agent.id), { settled: 2 });
});

t.test("while outcomes are late", async (t) => {
  const ctx = await testApp(t, {
    env: { SETTLE_WAIT_MS: "300" },
  });
  const { app, chain } = ctx;
  const owner = await signIn(ctx);
  const payee = freshPayee();
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee] });
  await chain.mint(agent.walletAddress, 20n * usdc);
  const spend = () => spendAs(app, agent, { recipient: payee, amount: "1" }, "late");
  // No block is mined until the test mines one.
  await chain.testClient.setAutomine(false);
  const first = await spend();
  t.equal(first.statusCode, 504, first.body);
  const { code, paymentId } = first.json<{ code: string; paymentId: string }>();
  t.equal(code, "payment_status_unknown");
  const me = await app.inject({ url: "/api/agents/me", headers: agent.headers });
  t.match(me.json(), { limits: { spent: "0", reserved: "1", remaining: "9" } }, "still counted");
  await chain.testClient.setAutomine(true);
  await until(async () => {
    await chain.testClient.mine({ blocks: 1 });
    const read = await app.inject({
      url: `/api/agents/me/payments/${paymentId}`,
      headers: agent.headers,
    });
    return read.json<{ status: string }>().status === "settled";
  });
  const again = await spend();
  t.equal(again.statusCode, 200, "the same key returns the outcome once it is known");
  t.match(again.json(), { success: true, paymentId, amount: "1" });
  t.equal(again.headers["idempotent-replayed"], "true");
  t.equal(await usdcOf(ctx, payee), usdc, "paid once");
});
