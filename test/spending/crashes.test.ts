// Goal: whenever the process is killed, nothing is paid twice, lost or under-counted, and a reservation is freed only on proof.
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { checkLedger, statusesOf, usdcOf } from "./ledger.helper.ts";
import { post, startReplica } from "./replica.helper.ts";

const usdc = 1_000_000n;

async function world(t: Test, blockTimeSeconds: number | "auto") {
  const ctx = await testApp(t, { chainOptions: { blockTimeSeconds } });
  const owner = await signIn(ctx);
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await createAgent(ctx, owner, { dailyLimit: "1", allowlist: [payee] });
  await ctx.chain.mint(agent.walletAddress, 5n * usdc);
  return { ...ctx, agent, payee };
}

const body = (payee: string) => ({ recipient: payee, amount: "1" });

for (const point of ["reserved", "signed"] as const) {
  t.test(`killed when ${point}: counted until swept, then free, paid once`, async (t) => {
    const ctx = await world(t, "auto");
    const { app, agent, payee, database } = ctx;
    const doomed = await startReplica(t, ctx, { PURSER_TEST_FAULT: point });
    const headers = { ...agent.headers, "idempotency-key": "crash" };
    await t.rejects(post(`${doomed.url}/api/agents/spend`, headers, body(payee)));
    await doomed.ended;
    t.same(await statusesOf(ctx, agent.id), { reserved: 1 });
    const other = await app.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers: agent.headers,
      payload: JSON.stringify(body(payee)),
    });
    t.equal(other.json<{ code: string }>().code, "daily_limit_exceeded", "still counted");
    t.equal(await app.payments.sweepUnsigned({ olderThanSeconds: 60 }), 0, "too young to judge");
    await database.pool.query(
      "UPDATE payments SET created_at = created_at - interval '61 seconds' WHERE agent_id = $1",
      [agent.id],
    );
    t.equal(await app.payments.sweepUnsigned({ olderThanSeconds: 60 }), 1);
    const retry = await app.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers,
      payload: JSON.stringify(body(payee)),
    });
    t.equal(retry.statusCode, 200, `the same key pays now: ${retry.body}`);
    t.equal(await usdcOf(ctx, payee), usdc);
    t.same(await statusesOf(ctx, agent.id), { blocked: 1, settled: 1, voided: 1 });
    await checkLedger(t, ctx, { agentId: agent.id, payee });
  });
}

for (const point of ["reserved", "signed"] as const) {
  t.test(`killed when ${point}, without a key: the same call elsewhere pays once`, async (t) => {
    const ctx = await world(t, "auto");
    const { agent, payee, database } = ctx;
    const doomed = await startReplica(t, ctx, { PURSER_TEST_FAULT: point });
    const url = "/api/agents/spend";
    await t.rejects(post(`${doomed.url}${url}`, agent.headers, body(payee)));
    await doomed.ended;
    const payload = JSON.stringify(body(payee));
    const again = ctx.app.inject({ method: "POST", url, headers: agent.headers, payload });
    // It waits for the dead one, of which nobody can tell yet that it is dead.
    await new Promise((resolve) => setTimeout(resolve, 500));
    t.same(await statusesOf(ctx, agent.id), { reserved: 1 });
    await database.pool.query(
      "UPDATE payments SET created_at = created_at - interval '2 minutes' WHERE agent_id = $1",
      [agent.id],
    );
    const answer = await again;
    t.equal(answer.statusCode, 200, answer.body);
    t.equal(answer.json<{ replayed?: true }>().replayed, undefined, "nothing moved before");
    t.equal(await usdcOf(ctx, payee), usdc);
    await checkLedger(t, ctx, { agentId: agent.id, payee });
  });
}

t.test("killed after the broadcast, without a key: the same call elsewhere joins", async (t) => {
  const ctx = await world(t, 3);
  const { app, agent, payee, database } = ctx;
  const doomed = await startReplica(t, ctx);
  const request = post(`${doomed.url}/api/agents/spend`, agent.headers, body(payee)).catch(
    () => undefined,
  );
  await until(async () => {
    const { rows } = await database.pool.query("SELECT status FROM settlements");
    return rows.some((row: { status: string }) => row.status !== "queued");
  });
  doomed.child.kill("SIGKILL");
  await doomed.ended;
  await request;
  const spend = () =>
    app.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers: agent.headers,
      payload: JSON.stringify(body(payee)),
    });
  let joined = await spend();
  // Unknown is no end: asked again it is joined again.
  for (let turn = 0; joined.statusCode === 504 && turn < 10; turn += 1) joined = await spend();
  t.equal(joined.statusCode, 200, joined.body);
  t.equal(joined.json<{ replayed: true }>().replayed, true);
  t.equal(await usdcOf(ctx, payee), usdc);
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});

t.test("a signer that wakes up after the sweep sends nothing", async (t) => {
  const ctx = await world(t, "auto");
  const { app, agent, payee } = ctx;
  app.paymentFaults.at = async (point) => {
    if (point === "signed") await app.payments.sweepUnsigned({ olderThanSeconds: 0 });
  };
  const answer = await app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers: agent.headers,
    payload: JSON.stringify(body(payee)),
  });
  t.equal(answer.statusCode, 503, answer.body);
  t.equal(await usdcOf(ctx, payee), 0n);
  t.same(await statusesOf(ctx, agent.id), { voided: 1 });
  const { rows } = await ctx.database.pool.query("SELECT 1 FROM settlements");
  t.equal(rows.length, 0, "no settlement");
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});

t.test("signing fails: the budget is free at once", async (t) => {
  const ctx = await world(t, "auto");
  const { app, agent, payee } = ctx;
  app.paymentFaults.at = async () => {
    app.paymentFaults.at = undefined;
    throw new Error("the signer is broken");
  };
  const spend = () =>
    app.inject({
      method: "POST",
      url: "/api/agents/spend",
      headers: agent.headers,
      payload: JSON.stringify(body(payee)),
    });
  t.equal((await spend()).statusCode, 500);
  t.same(await statusesOf(ctx, agent.id), { voided: 1 });
  t.equal((await spend()).statusCode, 200);
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});

t.test("killed between broadcast and receipt: another process tells the outcome", async (t) => {
  const ctx = await world(t, 3);
  const { app, agent, payee, database } = ctx;
  // Only the doomed one holds the relayer's lane: the app that watches must take over.
  const doomed = await startReplica(t, ctx);
  const headers = { ...agent.headers, "idempotency-key": "broadcast" };
  const request = post(`${doomed.url}/api/agents/spend`, headers, body(payee)).catch(
    () => undefined,
  );
  await until(async () => {
    const { rows } = await database.pool.query("SELECT status FROM settlements");
    return rows.some((row: { status: string }) => row.status !== "queued");
  });
  doomed.child.kill("SIGKILL");
  await doomed.ended;
  await request;
  const early = await app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers,
    payload: JSON.stringify(body(payee)),
  });
  t.ok([200, 409].includes(early.statusCode), early.body);
  await until(async () => (await statusesOf(ctx, agent.id))["settled"] === 1, 30_000);
  const late = await app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers,
    payload: JSON.stringify(body(payee)),
  });
  t.equal(late.statusCode, 200, late.body);
  t.equal(late.headers["idempotent-replayed"], "true");
  t.equal(await usdcOf(ctx, payee), usdc);
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});
